"""Progress of commands: a region that redraws itself in a terminal, plain lines in a log."""

import collections
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from tokenfree.workflows.terminal.output import Verbosity, one_line, printable
from tokenfree.workflows.terminal.results import clock, counted, short

if TYPE_CHECKING:
    from tokenfree.preprocess.download import Progress
    from tokenfree.train.inference.folder import ShardRecord

SEPARATOR = " · "
# Seconds between lines if the output is not a terminal.
LOG_INTERVAL = 10.0


class PlainConsole(Console):
    """A rich console that prints strings as plain text, without markup, emoji names or control characters."""

    def __init__(self, stream: TextIO, width: int | None = None) -> None:
        super().__init__(file=stream, width=width, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the string as text. It is made printable before its width is measured."""
        return super().render_str(printable(text), **{**options, "markup": False})

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor visible, so that a killed command does not leave the terminal without one."""
        return False


def console() -> PlainConsole:
    # Output for programs is never wrapped.
    return PlainConsole(sys.stdout, None if sys.stdout.isatty() else 1_000_000)


class Display:
    """The last lines of a terminal, redrawn while a command works. Printed messages appear above them.

    `draw` returns what to show. Nothing is drawn unless `stream` is a terminal and `verbosity` is `normal`.
    """

    def __init__(self, stream: TextIO, draw: Callable[[], RenderableType], verbosity: Verbosity) -> None:
        self.console = PlainConsole(stream)
        self.live = verbosity == "normal" and stream.isatty() and self.console.is_interactive
        self._draw = draw
        self._shown: Live | None = None

    def show(self) -> None:
        if self.live and self._shown is None:
            self._shown = Live(
                get_renderable=self._draw,
                console=self.console,
                refresh_per_second=8,
                redirect_stdout=sys.stdout.isatty(),  # leaves output to a file alone
            )
            self._shown.start(refresh=True)

    def message(self, text: str) -> None:
        """Print a line above the drawn lines, without wrapping it."""
        self.console.print(Text(one_line(text)), soft_wrap=True)

    def stop(self, *, keep: bool) -> None:
        """Stop drawing.

        With `keep`, draw once more and begin a new line; otherwise, erase the drawn lines.
        """
        if self._shown is not None:
            self._shown.transient = not keep
            self._shown.stop()
            self._shown = None


class LiveLine:
    """A line that is redrawn in place in a terminal, and written every ten seconds to a log file.

    It has parts, the most important first. A terminal shows as many of them as fit into a line. A log file
    shows all of them, after the time of day. `quiet` prints only messages; `verbose` writes lines as in a log
    file.
    """

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        self.stream = sys.stderr if stream is None else stream
        # Drawn, or not yet written to a log.
        self.shown: tuple[str, ...] = ()
        self.began = time.monotonic()
        # Of the last line of a log.
        self.time = self.began
        self._display = Display(self.stream, self._line, verbosity)
        self.live = self._display.live
        self._quiet = verbosity == "quiet"
        # Message, and the time when waiting began.
        self._waiting: tuple[str, float] | None = None

    def show(self, *parts: str, final: bool = False) -> None:
        """Replace the shown parts.

        A log waits for `LOG_INTERVAL` to pass. If `final`, the line is kept at once.
        """
        self.shown, self._waiting = () if self._quiet else parts, None
        if self.live:
            self._display.show()
        if final or (not self.live and time.monotonic() - self.time >= LOG_INTERVAL):
            self.close()

    def message(self, text: str) -> None:
        if self.live:
            self._display.message(text)
        else:
            self._log(text)

    def wait(self, text: str) -> None:
        """Show `text` and the time since the first call with it, until other parts are shown."""
        if self.live:
            if self._waiting is None or self._waiting[0] != text:
                self._waiting = text, time.monotonic()
            self._display.show()
        elif not self._quiet:
            self._log(text)

    def clear(self) -> None:
        self.shown, self._waiting = (), None
        self._display.stop(keep=False)

    def close(self) -> None:
        self._waiting = None
        if self.live:
            self._display.stop(keep=bool(self.shown))
        elif self.shown:
            self._log(SEPARATOR.join(self.shown))
            self.time = time.monotonic()
        self.shown = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> Text:
        # Drawing is in another thread.
        waiting, parts = self._waiting, self.shown
        if waiting is not None:
            parts = (clock(int(time.monotonic() - waiting[1])), waiting[0])
        return Text(one_line(SEPARATOR.join(parts)), no_wrap=True, overflow="ellipsis")

    def _log(self, text: str) -> None:
        self.stream.write(f"{time.strftime('%H:%M:%S')}  {one_line(text)}\n")
        self.stream.flush()


class DownloadLine(LiveLine):
    """The live line of a download: wiki, bytes of all files, rate and time left, or what it is waiting for."""

    def __call__(self, progress: "Progress") -> None:
        seconds = time.monotonic() - self.began
        # Full names would wrap the line.
        wiki = progress.name.partition("-pages")[0]
        parts = [wiki, f"{progress.done / 1e6:,.1f} of {progress.total / 1e6:,.1f} MB"]
        if seconds > 1 and progress.received:
            rate = progress.received / seconds
            parts.append(f"{rate / 1e6:.1f} MB/s")
            if progress.done < progress.total:
                parts.append(f"{clock(int((progress.total - progress.done) / rate))} left")
        self.show(*parts)


# What the stages count, besides shards.
_COUNTED = {"read": "split", "merge": "merge"}
# Previous stages that count the same input splits or shards.
_STAGE_BEFORE = {"vocabulary": "read", "finish": "build"}


class StageLine(LiveLine):
    """The live line of preprocessing: stage, input splits or shards done, rate and time left."""

    stage = ""

    def __call__(self, progress: Any) -> None:
        if progress.stage != self.stage:
            # The stage may have ended between two calls.
            if self.stage:
                ended = progress if self.stage == _STAGE_BEFORE.get(progress.stage) else self.last
                self(replace(ended, stage=self.stage, done=ended.total))
            self.close()
            self.stage, self.first, self.start = progress.stage, progress, time.monotonic()
        self.last = progress
        seconds, done = time.monotonic() - self.start, progress.done - self.first.done
        counts = f"{progress.done:,} of {counted(progress.total, _COUNTED.get(self.stage, 'shard'))}"
        parts = [self.stage if self.stage == "vocabulary" else f"{self.stage:<11}{counts}"]
        if seconds > 1 and done and progress.done < progress.total:
            parts.append(f"about {clock(seconds * (progress.total - progress.done) / done)} left")
        parts.append(clock(seconds))
        if progress.bytes and self.stage != "vocabulary":
            # Without the output of an earlier, killed job.
            new_bytes = progress.bytes - self.first.bytes
            rate = f", {new_bytes / seconds / 1e6:,.1f} MB/s" if new_bytes and seconds > 1 else ""
            parts.append(f"{progress.bytes / 1e6:,.1f} MB{rate}")
        if progress.characters:
            parts.append(f"{progress.characters:,} characters")
        if progress.too_short > 0.5:
            parts.append(f"{progress.too_short:.0%} too short, see filters.min_characters")
        self.show(*parts)


class EmbeddingLine(LiveLine):
    """The live line of embedding: finished texts and shards, characters per second, time and characters."""

    _shards = _texts = _characters = _made = 0

    def __call__(self, record: "ShardRecord", is_new: bool) -> None:
        """Add a shard. `is_new` is False if an earlier command wrote it."""
        seconds = time.monotonic() - self.began
        self._shards += 1
        self._texts += record.texts
        self._characters += record.characters
        self._made += record.characters if is_new else 0
        rate = [f"{self._made / seconds:,.0f} characters/s"] if self._made and seconds > 1 else []
        texts, shards = counted(self._texts, "text"), counted(self._shards, "shard")
        self.show(texts, shards, *rate, clock(int(seconds)), f"{self._characters:,} characters")


# Number of steps over which speeds are averaged.
_RECENT = 20


class ProgressLine(LiveLine):
    """The newest line of metrics: `with ProgressLine(steps=1000) as progress: pretrain(..., progress=progress)`."""

    def __init__(self, *, steps: int, stream: TextIO | None = None, verbosity: Verbosity = "normal") -> None:
        super().__init__(stream, verbosity=verbosity)
        # The first line is shown at once.
        self.time = float("-inf")
        self._steps = steps
        self._recent: collections.deque[Mapping[str, Any]] = collections.deque(maxlen=_RECENT)
        self._validation: float | None = None
        self._restarts = 0

    def __call__(self, line: Mapping[str, Any]) -> None:
        if "event" in line:
            self._event(line)
        elif "validation_loss" in line:
            self._validation = line["validation_loss"]
            if self._recent:
                self.show(*self.parts(), final=not self.live)
        else:
            self._recent.append(line)
            self.show(*self.parts(), final=line["step"] == self._steps and not self.live)

    def parts(self) -> list[str]:
        recent, last = self._recent, self._recent[-1]
        seconds = sum(line["seconds"] for line in recent)
        parts = [f"step {last['step']:,}/{self._steps:,}", f"loss {last['loss']:.3f}"]
        if self._validation is not None:
            parts.append(f"held-out {self._validation:.3f}")
        parts.append(f"{clock((self._steps - last['step']) * seconds / len(recent))} left")
        if self._restarts:
            parts.append(f"restarts {self._restarts}")
        parts.append(f"{short(sum(line['characters'] for line in recent) / seconds)} characters/s")
        if "bits_per_character" in last:
            parts.append(f"{last['bits_per_character']:.2f} bits per character")
        parts.append(f"utilisation {sum(line['utilisation'] for line in recent) / len(recent):.0%}")
        parts.append(f"data wait {sum(line['data_wait'] for line in recent) / seconds:.0%}")
        return parts

    def _event(self, line: Mapping[str, Any]) -> None:
        if line["event"] == "worker_lost":
            self._restarts += 1
        # Later steps are trained again.
        if line["event"] == "roll_back":
            self._recent.clear()
        if line["event"] == "launch":
            self.wait(line["message"])
        elif line.get("message"):
            for part in line["message"].splitlines():
                self.message(part)
