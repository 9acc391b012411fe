import pytest

from nanoeuler.curves import main
from nanoeuler.errors import UserError
from nanoeuler.metrics import MetricsLog


@pytest.fixture
def run(tmp_path):
    with MetricsLog(tmp_path / "small") as log:
        log.step(1, train_loss=4.0, val_loss=3.9)
        log.step(2, train_loss=3.0)
        log.step(3, train_loss=2.0, val_loss=1.9)
    return tmp_path / "small"


def test_draws_every_run_and_line(run, tmp_path):
    out = tmp_path / "curves.svg"
    main([str(run), f"other={run}", "--line", "theirs=1.88", "--title", "A & B", "--out", str(out)])
    svg = out.read_text()
    assert svg.startswith("<svg")
    for text in ("small", "other", "theirs", "A &amp; B"):
        assert text in svg
    assert "2" not in svg[svg.index("<desc>") : svg.index("</desc>")].split()  # step 2 was not evaluated


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a run"),
        (["RUN", "--line", "1.88x"], "NAME=LOSS"),
        (["RUN", "--lin", "a=1"], "did you mean '--line'"),
    ],
)
def test_errors_say_what_to_do(run, tmp_path, arguments, message):
    arguments = [str(run) if a == "RUN" else a for a in arguments]
    with pytest.raises(UserError, match=message):
        main([*arguments, "--out", str(tmp_path / "x.svg")])
    assert not (tmp_path / "x.svg").exists()


def test_a_run_without_evaluation_is_named(tmp_path):
    with MetricsLog(tmp_path / "young") as log:
        log.step(1, train_loss=4.0)
    with pytest.raises(UserError, match="young has not been evaluated"):
        main([str(tmp_path / "young"), "--out", str(tmp_path / "x.svg")])
