"""Several runs in one picture: ``python -m nanoeuler.curves RUN [RUN ...] --out FILE.svg``."""

from pathlib import Path

from nanoeuler.config import Parser
from nanoeuler.errors import UserError, run_command
from nanoeuler.files import replace_file, writing
from nanoeuler.metrics import read_metrics
from nanoeuler.report import Series, line_chart


def main(arguments: list[str]) -> int:
    """Draw the validation losses of runs over their steps, with a horizontal line for each ``--line``."""
    parser = Parser(prog="python -m nanoeuler.curves", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder; NAME=RUN gives its curve a name")
    parser.add_argument("--out", required=True, metavar="FILE", help="the SVG file to write")
    parser.add_argument("--title", default="Validation loss", help="of the picture [Validation loss]")
    parser.add_argument(
        "--line", action="append", default=[], metavar="NAME=LOSS", help="draw a dashed line at a loss, named"
    )
    options = parser.parse_args(arguments)
    series = [_series(run, color) for color, run in enumerate(options.runs)]
    lines = [_line(text) for text in options.line]
    chart = line_chart(series, title=options.title, y_label="nats per token", settled=0.1, rules=lines)
    with writing(Path(options.out)):
        replace_file(Path(options.out), chart.encode())
    print(options.out)
    return 0


def _series(argument: str, color: int) -> Series:
    name, _, run = argument.rpartition("=")
    path = Path(run) / "metrics.jsonl"
    if not path.exists():
        raise UserError(f"{run} is not a run: it has no {path.name}")
    points = [(r["step"], r["val_loss"]) for r in read_metrics(path) if r.get("val_loss") is not None]
    if not points:
        raise UserError(f"{run} has not been evaluated yet: there is no validation loss to draw")
    return Series(name or Path(run).resolve().name, points, color=color)


def _line(text: str) -> tuple[float, str]:
    name, _, loss = text.rpartition("=")
    try:
        return float(loss), name
    except ValueError:
        raise UserError(f"--line takes NAME=LOSS, such as 'nanoGPT=1.88', not '{text}'") from None


if __name__ == "__main__":
    raise SystemExit(run_command(main))
