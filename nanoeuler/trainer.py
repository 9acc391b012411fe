"""A training run: the loop around the steps, and all that it shows, records, saves and survives.

The state of a run is in its last checkpoint: weights, moments, and a few numbers (the step, how many windows were
dealt, how many updates, the recent losses). Batches, dropout and samples are functions of the seed and of those
numbers, so a run that was killed goes on to the same bytes.
"""

import contextlib
import math
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from nanoeuler.checkpoint import Checkpoint, find_checkpoint, write_checkpoint
from nanoeuler.config import Config
from nanoeuler.console import Console, format_count, format_duration, visible
from nanoeuler.corpus import Batches, Corpus, Prefetch
from nanoeuler.errors import UserError
from nanoeuler.files import replace_file, writing
from nanoeuler.metrics import MetricsLog, read_metrics
from nanoeuler.model import Transformer
from nanoeuler.parameters import parameter_count, parameter_shapes
from nanoeuler.report import write_report
from nanoeuler.sampling import Sampling, generate, sample_prompt
from nanoeuler.schedule import learning_rate
from nanoeuler.step import StepResult, TrainingStep
from nanoeuler.tokenizer import Tokenizer

#: Updates in a row that may be skipped before the run stops.
MOST_SKIPPED = 10
#: Share of the old value in the smoothed loss.
SMOOTHING = 0.95


@dataclass
class Data:
    """What a run learns from, ready to be drawn from."""

    corpus: Corpus
    text_sha256: str  # of the text, or the fingerprint of prepared corpora
    tokenizer: Tokenizer
    batches: Batches
    bytes_per_token: float  # of the validation text
    floor: float | None  # nats per token that no model can go below, where it is known
    document_start: int | None = None  # the end-of-text token, where attention is to stay within documents
    end_ids: tuple[int, ...] = ()  # tokens that end a generation, where a model that the run began with says so


class Trainer:
    """One run in one directory, from the start or from a checkpoint."""

    def __init__(
        self,
        config: Config,
        data: Data,
        ops: Any,
        run: Path,
        resume: Checkpoint | None,
        notes: list[str],
        weights: np.ndarray | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            config: all of it resolved.
            data: what it learns from.
            ops: the op table.
            run: the directory of the run.
            resume: the checkpoint to go on from, if there is one.
            notes: what the user should know.
            weights: to start from where there is no checkpoint; initial ones if None.
        """
        self.config, self.data, self.ops, self.run, self.notes = config, data, ops, run, notes
        weights = weights if resume is None else resume.weights
        self.step = TrainingStep(config.model, config.training, ops, weights, document_start=data.document_start)
        progress = {} if resume is None else resume.progress
        self.done: int = progress.get("step", 0)
        t = config.training
        windows = t.gradient_accumulation * t.batch_size  # of a step, when checkpoints did not say how many were dealt
        self.dealt: int = progress.get("windows_dealt", self.done * windows)
        self.elapsed: float = progress.get("elapsed_seconds", 0.0)
        self.smoothed: float | None = progress.get("smoothed_loss")
        self.best: list[Any] = progress.get("best", [])  # validation loss and step
        self.skipped: int = progress.get("skipped", 0)
        self.skipped_in_row: int = progress.get("skipped_in_row", 0)
        if resume is not None:
            if resume.moments is None:
                raise UserError(f"the checkpoint of step {self.done} has no optimizer state to go on with")
            self.step.restore(progress["training_step"], *resume.moments)
        self.saved_step = self.done if resume is not None else -1
        self.last_val_loss = math.nan
        self.sampler = Transformer(
            config.model, ops, self.step.model_weights, 1, config.model.max_seq_len, "generation"
        )

    def train(self) -> int:
        """Run to the last step; return the exit code: 0, or 128 plus the signal that asked the run to stop."""
        t, last = self.config.training, self.config.training.total_steps
        with (
            warnings.catch_warnings(),
            self.step,
            MetricsLog(self.run, resume_step=self.done if self.saved_step >= 0 else None) as self.log,
            Console(last, self.done) as self.console,
            stop_signals() as self.stop,
            Prefetch(self.data.batches.training_batches(self.dealt)) as self.batches,
        ):
            stop = self.stop
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's of overflows: the step judges what is not finite
            try:
                self._greet()
                save = False
                while self.done < last and not stop:
                    self._step()
                    end = self.done == last
                    if not stop and (end or due(self.done, t.sample_interval)):
                        self._sample()
                    save = save or end or due(self.done, t.checkpoint_interval)
                    if save and (not self.skipped_in_row or (end and self.saved_step < 0)):
                        self._save()  # weights that fail must not push out good ones
                        save = False
            except (OSError, UserError):  # a full disk, a file that is gone, a reader that left (`| tee`)
                if self.done > self.saved_step and not self.skipped_in_row:
                    with contextlib.suppress(OSError, UserError):
                        self._write_checkpoint()  # keep what was learned, then end
                raise
            if stop and self.done < last:
                self._save()
                self._report()
                self.console.note(
                    f"stopped by {stop[0].name} after step {self.done}: {self._checkpoint_path()} is saved, "
                    "and the same command goes on from there"
                )
                return 128 + stop[0]
            self._report()
            if self.saved_step < self.done:
                self.console.warning(
                    f"the last {self.skipped_in_row} updates were skipped: no checkpoint is written after these"
                )
        self._say_goodbye()
        return 0

    def _step(self) -> None:
        """Train one step, and evaluate where it is due, so that both are one record."""
        t, start = self.config.training, time.perf_counter()
        micro_batches = list(islice(self.batches, t.gradient_accumulation))
        rate = learning_rate(self.done, t)
        result = self.step.run(micro_batches, rate)
        self.done += 1
        self.dealt += t.gradient_accumulation * self.data.batches.global_batch
        seconds = time.perf_counter() - start
        self.elapsed += seconds
        self.skipped += bool(result.skipped)
        self.skipped_in_row = self.skipped_in_row + 1 if result.skipped else 0
        if math.isfinite(result.loss):
            self.smoothed = smooth(self.smoothed, result.loss, self.done)
        tokens = sum(inputs.size for inputs, _ in micro_batches)
        shown = {
            "train_loss": result.loss,
            "smoothed_loss": result.loss if self.smoothed is None else self.smoothed,
            "learning_rate": rate,
            "grad_norm": result.grad_norm,
            "tokens_per_second": tokens / seconds,
        }
        if self.done == 1 and (why := getattr(self.step.passes, "without_graph", "")):
            self.console.note(f"kernels are launched one by one, not as a CUDA graph: {why}")
        evaluated = self._evaluate()
        self.log.step(self.done, **shown, elapsed_seconds=self.elapsed, skipped=bool(result.skipped), **evaluated)
        self.console.step(self.done, **shown)
        if result.skipped:
            self.console.warning(
                f"step {self.done}: {result.skipped}; the update is skipped ({self.skipped} in this run so far)"
            )
        if evaluated:
            loss, bits = evaluated.values()
            self.console.evaluation(self.done, loss, bits, self.best == [loss, self.done])
            self._report()
        if self.skipped_in_row == MOST_SKIPPED:
            self._give_up(result)

    def _evaluate(self) -> dict[str, float]:
        """Return the validation loss and bits per byte where this step has an evaluation."""
        t, end = self.config.training, self.done == self.config.training.total_steps
        if not end and not due(self.done, t.eval_interval):
            return {}
        batches = self.data.batches.validation_batches(t.final_eval_batches if end else t.eval_batches)
        loss = self.step.evaluate(list(batches), lambda: bool(self.stop))
        if self.stop:  # it may be over part of the batches
            return {}
        self.last_val_loss = loss
        if math.isfinite(loss) and (not self.best or loss < self.best[0]):
            self.best = [loss, self.done]
        return {"val_loss": loss, "val_bits_per_byte": loss / math.log(2) / self.data.bytes_per_token}

    def _give_up(self, result: StepResult) -> None:
        try:
            good = f"the last good checkpoint is {find_checkpoint(self.run)[0]}"
        except UserError:
            good = "no checkpoint had been written yet"
        raise UserError(
            f"{MOST_SKIPPED} updates in a row were skipped, the last because {result.skipped}: the run stops at step "
            f"{self.done}; {good}. A lower training.learning_rate, a longer training.warmup_steps or a smaller "
            "training.grad_clip may help."
        )

    def _sample(self) -> None:
        t, tokenizer = self.config.training, self.data.tokenizer
        prompt = sample_prompt(tokenizer, t.sample_prompt)
        tokens = generate(self.sampler, prompt, tokenizer.vocab_size, Sampling(temperature=0.8), (t.seed, self.done))
        tokens = takewhile(lambda _: not self.stop, islice(tokens, t.sample_tokens))
        text = tokenizer.decode([*prompt.tolist(), *tokens]).lstrip("\n")
        self.log.sample(self.done, text)
        path = self.run / "samples" / f"step-{self.done:08d}.txt"
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            replace_file(path, f"{text}\n".encode("utf-8", "replace"))
        self.console.sample(self.done, text)

    def _save(self) -> None:
        if self.saved_step != self.done:
            self.log.sync()
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        progress = {
            "elapsed_seconds": self.elapsed,
            "smoothed_loss": self.smoothed,
            "best": self.best,
            "skipped": self.skipped,
            "skipped_in_row": self.skipped_in_row,
            "training_step": self.step.state(),
            "windows_dealt": self.dealt,
            "text_sha256": self.data.text_sha256,
        }
        weights, *moments = (self.ops.to_numpy(x) for x in (self.step.weights, self.step.m, self.step.v))
        tokenizer, ends = self.data.tokenizer, self.data.end_ids
        checkpoint = Checkpoint(self.config, weights, (moments[0], moments[1]), progress, tokenizer, ends)
        write_checkpoint(self.run, self.done, checkpoint, self.config.training.keep_checkpoints)
        self.saved_step = self.done

    def _checkpoint_path(self) -> Path:
        return self.run / "checkpoints" / f"step-{self.saved_step:08d}"

    def _report(self) -> None:
        """Draw the report; a run does not end for want of one."""
        notes = [self.data.corpus.reason, *self.notes]
        try:
            metrics, samples = read_metrics(self.log.path), read_samples(self.run, self.done)
            write_report(self.run, self.config, metrics, samples, self.data.floor, notes)
        except (OSError, UserError) as error:
            self.console.warning(f"no report: {error}")

    def _greet(self) -> None:
        model, t = self.config.model, self.config.training
        size = format_count(parameter_count(parameter_shapes(model)))
        tokens = format_count(sum(len(corpus.train) for corpus in self.data.batches.corpora))
        self.console.note(f"text: {self.data.corpus.reason}; {tokens} tokens to learn from")
        self.console.note(
            f"model: {model.preset}, {size} parameters; {t.total_steps} steps of "
            f"{t.batch_size * t.gradient_accumulation} x {model.max_seq_len} tokens on {self._who_works()}"
        )
        self.console.note(f"run: {self.run} (open {self.run / 'report.html'} in a browser)")
        for note in self.notes:
            self.console.note(note)

    def _who_works(self) -> str:
        workers = self.step.workers
        if not workers:
            return "the kernels (the first step compiles them)"
        return f"{workers} worker{'s' if workers > 1 else ''}"

    def _say_goodbye(self) -> None:
        batches, loss = self.config.training.final_eval_batches, self.last_val_loss
        last = f"validation loss {loss:.4f} over {batches} batches; " if math.isfinite(loss) else ""
        best = f"best validation loss {self.best[0]:.4f} at step {self.best[1]}; " if self.best else ""
        print(
            f"trained {self.done} steps in {format_duration(self.elapsed)}; {last}{best}"
            f"{self.skipped} updates skipped\n"
            + visible(
                f"checkpoint  {self._checkpoint_path()}\n"
                f"report      {self.run / 'report.html'}\n"
                f"sample with python -m nanoeuler.generate --checkpoint {self.run}"
            )
        )


def read_samples(run: Path, last_step: int) -> list[tuple[int, str]]:
    """Return step and text of a run's samples, oldest first; later ones were left by a run that was killed."""
    samples = []
    for path in sorted((run / "samples").glob("step-*.txt")):
        match = re.fullmatch(r"step-(\d{8,})\.txt", path.name)
        if match and path.is_file() and int(match[1]) <= last_step:
            samples.append((int(match[1]), path.read_text(encoding="utf-8", errors="replace")))
    return samples


def due(step: int, interval: int) -> bool:
    """Return whether something that happens every ``interval`` steps (0: never) happens after this one."""
    return interval > 0 and step % interval == 0


def smooth(old: float | None, new: float, step: int) -> float:
    """Return the exponential moving average of the loss, which in the first steps is their plain mean."""
    share = max(1 - SMOOTHING, 1 / step)
    return new if old is None else (1 - share) * old + share * new


@contextlib.contextmanager
def stop_signals() -> Iterator[list[signal.Signals]]:
    """Yield a list that is empty until a signal asks the run to stop; a second one ends the process at once."""
    received: list[signal.Signals] = []

    def on_signal(number: int, frame: FrameType | None) -> None:  # may interrupt a print: writes past Python's buffers
        if received:
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the cursor, which the bar hides
            os._exit(128 + number)
        received.append(signal.Signals(number))
        with contextlib.suppress(OSError):
            os.write(2, b"\nfinishing this step, then saving; once more ends at once\n")  # below the bar

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
