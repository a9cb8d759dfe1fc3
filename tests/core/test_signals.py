import signal
import threading
from collections.abc import Iterator

import pytest

from tokenfree.core.errors import StoppedError
from tokenfree.core.signals import STOP_SIGNALS, stop_on_signals


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background and the shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_the_first_signal_is_noted_and_the_second_acts_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals() as stop:
        assert not stop
        signal.raise_signal(signal.SIGINT)
        assert (stop.reason, stop.resumes) == ("SIGINT", False)
        assert (
            capfd.readouterr().err
            == "\nstopping after this step, with a checkpoint; Ctrl-C again ends it now\n"
        )
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) == before


def test_who_sends_sigterm_reads_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop
    assert not capfd.readouterr().err


@pytest.mark.parametrize("kind", STOP_SIGNALS)
def test_stop_on_signals_saves_whatever_the_signal(kind: signal.Signals) -> None:
    previous = signal.getsignal(kind)
    with stop_on_signals() as stop:
        signal.raise_signal(kind)
        assert stop.reason == kind.name
    assert signal.getsignal(kind) == previous
    assert StoppedError("stopped", reason=stop.reason).exit_status == 128 + kind


@pytest.mark.parametrize("kind", [signal.SIGHUP, signal.SIGXCPU])
def test_stop_on_signals_ignores_repeats_of_shells_and_the_kernel(kind: signal.Signals) -> None:
    with stop_on_signals() as stop:
        for _ in range(3):
            signal.raise_signal(kind)  # would end the tests
        assert stop.reason == kind.name


@pytest.mark.parametrize("kind", STOP_SIGNALS)
def test_stop_on_signals_leaves_ignored_signals_as_nohup_does(kind: signal.Signals) -> None:
    previous = signal.signal(kind, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(kind)
            assert not stop
        assert signal.getsignal(kind) == signal.SIG_IGN
    finally:
        signal.signal(kind, previous)


def test_other_threads_cannot_catch_signals_and_do_not_try() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def enter() -> None:
        with stop_on_signals() as stop:
            seen.extend([bool(stop), signal.getsignal(signal.SIGTERM)])

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [False, before]
