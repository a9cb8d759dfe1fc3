"""What changes in a terminal while a command works: live lines, one a kind of work."""

from __future__ import annotations

import collections
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.live_render import LiveRender
from rich.segment import ControlType, Segment
from rich.text import Text
from typing_extensions import Self

from tokenfree.core.errors import one_line, printable
from tokenfree.workflows.terminal.verbosity import Verbosity

if TYPE_CHECKING:
    from tokenfree.preprocess.download import Progress
    from tokenfree.train.inference.embed import ShardRecord


_PIPE = 1_000_000  # columns: nothing that is to be read by a program is ever wrapped


class PlainConsole(Console):
    """A console of rich whose strings are text, without markup, emoji names or control characters.

    Args:
        stream: where it prints.
        width: columns; by default those of the terminal.
    """

    def __init__(self, stream: TextIO, width: int | None = None) -> None:
        super().__init__(file=stream, width=width, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """The string as text, made printable before it is measured."""
        return super().render_str(printable(text), **{**options, "markup": False})

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """The segments of anything that can be printed, printable but for those that move the cursor."""
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console() -> PlainConsole:
    """Standard output; numbers and paths stay as they are, without colours of their own."""
    return PlainConsole(sys.stdout, None if sys.stdout.isatty() else _PIPE)


class Frame:
    """Lines that are written over the last ones in a single piece, each cut to the terminal's width.

    Unlike `rich.live.Live` it leaves the cursor visible, so that a killed command leaves a terminal as it should be.

    Args:
        stream: is drawn on only where `live` says that it can be.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = PlainConsole(stream)
        self._drawn = LiveRender(Text())  # knows how many lines it has in the terminal
        self._size = self.size
        self.live = stream.isatty() and self._console.is_interactive  # a terminal that can move its cursor

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal as it is now."""
        return self._console.size.width, self._console.size.height

    def draw(self, lines: Sequence[str]) -> None:
        """Write `lines` over those drawn before; the cursor stays at the end of the last one."""
        with self._console:  # in a single piece
            if self.size != self._size:  # the terminal has moved its lines, nobody knows where to
                self._size = self.size
                self._begin_below()
            self._console.print(self._back())
            self._drawn.set_renderable(Text("\n".join(map(one_line, lines)), no_wrap=True, overflow="ellipsis"))
            self._console.print(self._drawn)

    def above(self, text: str) -> None:
        """Write `text`, whole, above the lines that are drawn."""
        with self._console:
            self._console.print(self._back())
            self._console.print(Text(text), soft_wrap=True)
            self._console.print(self._drawn)

    def finish(self, text: str) -> None:
        """Write `text`, whole, in place of what is drawn, and begin below it."""
        with self._console:
            self._console.print(self._back())
            self._console.print(Text(text), soft_wrap=True)
        self._drawn = LiveRender(Text())

    def clear(self) -> None:
        """Take away what is drawn."""
        self._console.control(self._back())
        self._drawn = LiveRender(Text())

    def _begin_below(self) -> None:
        if self._drawn.last_render_height:
            self._console.line()
        self._drawn = LiveRender(Text())

    def _back(self) -> Control:
        """Back to where drawing began, all from there erased; at first, whatever stands in the cursor's line."""
        if self._drawn.last_render_height:
            return self._drawn.position_cursor()
        return Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


LOG_INTERVAL = 10.0  # seconds between lines where the output is no terminal


_LIVE_INTERVAL = 0.1  # where it is one


_TICK = 1.0  # seconds between two looks at the clock


class LiveLine:
    """A line that is drawn over itself in a terminal, and written anew every `interval` seconds in a log file.

    It has parts, the most important first. A terminal shows as many of them as fit into a line; a log file has them
    all, after the time of the day.

    Args:
        stream: standard error by default.
        interval: seconds between two lines of a log file.
        verbosity: `quiet` leaves only messages, `verbose` writes lines as in a log file.
    """

    separator = "  "

    def __init__(
        self, stream: TextIO | None = None, *, interval: float = LOG_INTERVAL, verbosity: Verbosity = "normal"
    ) -> None:
        self.stream = sys.stderr if stream is None else stream
        self._frame = Frame(self.stream)
        self.live = self._frame.live and verbosity == "normal"
        self._quiet = verbosity == "quiet"
        self.interval = _LIVE_INTERVAL if self.live else interval
        self.shown: tuple[str, ...] = ()  # what is not kept yet
        self.time = float("-inf") if self.live else time.monotonic()  # of the last line written
        self._waiting: threading.Event | None = None  # set when the wait is over
        self._drawing = threading.Lock()

    def show(self, *parts: str, final: bool = False) -> None:
        """Show `parts` in place of the last ones, unless those are too new; final ones are shown at once and stay."""
        if self._quiet:
            return
        now = time.monotonic()
        due = final or now - self.time >= self.interval
        if due:
            self._end_wait()
            self.time = now
            if not self.live:
                self._log(self.separator.join(parts))
            elif final:
                self._frame.finish(self._fitted(parts))
            else:
                self._frame.draw([self._fitted(parts)])
        self.shown = () if final or (due and not self.live) else parts

    def message(self, text: str) -> None:
        """Write `text` as a line of its own, above the live one."""
        if self.live:
            with self._drawing:
                self._frame.above(one_line(text))
        else:
            self._log(text)

    def wait(self, text: str) -> None:
        """Show `text` and for how long it has been shown, until there is something else to show."""
        if self._quiet:
            return None
        if not self.live:
            return self._log(text)
        self._end_wait()
        over, began = threading.Event(), time.monotonic()
        self._waiting = over

        def tick() -> None:
            while True:
                with self._drawing:
                    if over.is_set():
                        return
                    self._frame.draw([self._fitted((clock(int(time.monotonic() - began)), text))])
                over.wait(_TICK)

        threading.Thread(target=tick, daemon=True).start()

    def clear(self) -> None:
        """Forget what is shown, so that plain lines can follow."""
        self._end_wait()
        if self.live and self.shown:
            self._frame.clear()
        self.shown = ()

    def close(self) -> None:
        """Keep what is shown and move to a fresh line."""
        self._end_wait()
        if self.shown:
            self.show(*self.shown, final=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _end_wait(self) -> None:
        if self._waiting is None:
            return
        with self._drawing:
            self._waiting.set()
            self._waiting = None
            self._frame.clear()

    def _fitted(self, parts: tuple[str, ...]) -> str:
        return fitted([one_line(part) for part in parts], self.separator, self._frame.size[0] - 1)

    def _log(self, text: str) -> None:
        self.stream.write(f"{time.strftime('%H:%M:%S')}  {one_line(text)}\n")
        self.stream.flush()


def fitted(parts: Sequence[str], separator: str, width: int) -> str:
    """The parts from the left that fit into `width` columns: the first one at least."""
    kept = 1
    while kept < len(parts) and cell_len(separator.join(parts[: kept + 1])) <= width:
        kept += 1
    return separator.join(parts[:kept])


def short(number: float) -> str:
    """A number in a few characters: 950, 1.2k, 3.4M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{suffix}"
    return f"{number:.0f}"


def clock(seconds: float) -> str:
    """A time as 0:07 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class DownloadLine(LiveLine):
    """The live line of a download: wiki, bytes of all files, rate and time left; or why nothing moves."""

    separator = " · "

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        super().__init__(stream, verbosity=verbosity)
        self.start: float | None = None

    def __call__(self, progress: Progress) -> None:
        """Show how far the files are."""
        now = time.monotonic()
        if self.start is None:
            self.start = now
        of = "" if progress.total is None else f" of {progress.total / 1e6:,.1f}"
        wiki = progress.name.partition("-pages")[0]  # whole names would wrap the line
        parts = [wiki, f"{progress.done / 1e6:,.1f}{of} MB"]
        if now - self.start > 1:
            rate = progress.received / (now - self.start)
            parts.append(f"{rate / 1e6:.1f} MB/s")
            if progress.total is not None and progress.done < progress.total:
                minutes, seconds = divmod(int((progress.total - progress.done) / rate), 60)
                parts.append(f"{minutes}:{seconds:02} left")
        self.show(*parts)


_STAGE_BEFORE = {"vocabulary": "read", "finish": "build"}  # stages that count the same input splits or shards


class StageLine(LiveLine):
    """The live line of preprocessing: stage, input splits or shards done, rate and time left."""

    separator = " · "

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        super().__init__(stream, verbosity=verbosity)
        self.stage = ""
        self.first: Any = None
        self.last: Any = None
        self.start = self.changed = 0.0

    def __call__(self, progress: Any) -> None:
        """Show a `tokenfree.pipelines.progress.Progress`; one that is shown again only moves the clock."""
        now = time.monotonic()
        if self.stage and self.stage == _STAGE_BEFORE.get(progress.stage):
            self(replace(progress, stage=self.stage))  # whose end may have come between two looks
        if progress.stage != self.stage:
            self.close()
            self.stage, self.first, self.start = progress.stage, progress, now
        if progress != self.last:
            self.last, self.changed = progress, now
        characters = [f"{progress.characters:,} characters"] if progress.characters else []
        parts = [self._parts_done(), *self._left(now), clock(int(now - self.start)), *self._bytes(), *characters]
        self.show(*parts)

    def _parts_done(self) -> str:
        if self.stage == "vocabulary":  # made by one worker from all input splits
            return f"{self.stage:<11}{_trained(self.last.training)}".rstrip()
        noun = "split" if self.stage == "read" else "shard"
        return f"{self.stage:<11}{self.last.done:,} of {counted(self.last.total, noun)}"

    def _bytes(self) -> list[str]:
        """Megabytes, and those of a second since the stage began; what an earlier, killed job had done counts not."""
        if not self.last.bytes or self.stage == "vocabulary":
            return []
        seconds = self.changed - self.start
        rate = f", {(self.last.bytes - self.first.bytes) / seconds / 1e6:,.1f} MB/s" if seconds > 1 else ""
        return [f"{self.last.bytes / 1e6:,.1f} MB{rate}"]

    def _left(self, now: float) -> list[str]:
        seconds, done = self.changed - self.start, self.last.done - self.first.done
        if seconds <= 1 or not done or self.last.done >= self.last.total:
            return []
        left = seconds * (self.last.total - self.last.done) / done - (now - self.changed)
        return [f"about {clock(int(max(left, 0)))} left"]


def _trained(training: Any) -> str:
    """How far a `tokenfree.preprocess.features.vocabulary_process.TrainingProgress` is, in words."""
    if training is None:
        return ""
    done, total = f"{training.done:,}", f"{training.total:,}"
    return {
        "sample": f"{done} of {total} characters read",
        "candidates": "candidates sought",
        "rounds": f"round {done} of about {total}",
        "merges": f"{done} of {total} pieces",
    }[training.phase]


def counted(number: int, noun: str) -> str:
    """`1 shard`, `2 shards`, `1,000 shards`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class EmbeddingLine(LiveLine):
    """Shows the texts that stand as shards: how many, with how many characters, and how many of these a second."""

    separator = " · "

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        super().__init__(stream, verbosity=verbosity)
        self._start = time.monotonic()
        self._shards = self._texts = self._characters = self._made = 0

    def __call__(self, record: ShardRecord, made: bool) -> None:
        """Take a shard that was made now, or had been before."""
        seconds = time.monotonic() - self._start
        self._shards += 1
        self._texts += record.texts
        self._characters += record.characters
        self._made += record.characters if made else 0
        rate = [f"{self._made / seconds:,.0f} characters/s"] if self._made and seconds > 1 else []
        texts, shards = counted(self._texts, "text"), counted(self._shards, "shard")
        self.show(texts, shards, *rate, clock(int(seconds)), f"{self._characters:,} characters")


_RECENT = 20  # steps over which speeds are averaged


class ProgressLine(LiveLine):
    """Shows the newest line of metrics: `with ProgressLine(steps=1000) as progress: pretrain(..., progress=progress)`.

    Args:
        steps: of the whole run, for the time left.
        stream: standard error by default.
        interval: seconds between lines where the stream is no terminal.
        verbosity: see `LiveLine`.
    """

    def __init__(
        self,
        *,
        steps: int,
        stream: TextIO | None = None,
        interval: float = LOG_INTERVAL,
        verbosity: Verbosity = "normal",
    ) -> None:
        super().__init__(stream, interval=interval, verbosity=verbosity)
        self.time = float("-inf")  # the first line is shown at once
        self._steps = steps
        self._recent: collections.deque[Mapping[str, Any]] = collections.deque(maxlen=_RECENT)
        self._validation: float | None = None
        self._restarts = 0

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Take a line of metrics.jsonl or events.jsonl."""
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
        """The line as it stands, such as `step 120/1,000`, `loss 4.312`, `held-out 4.401`, `8:15 left` and so on."""
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
        if line["event"] == "roll_back":  # the steps from there on come again
            self._recent.clear()
        if line["event"] == "launch":
            self.wait(line["message"])
        elif line.get("message"):
            for part in line["message"].splitlines():
                self.message(part)
