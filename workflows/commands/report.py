"""Make one self-contained HTML page about runs, sweeps and data directories.

It opens with three sentences of findings, the dates, the versions and the machine. Then come pictures and tables of
loss, throughput, restarts and corpus counts; several runs are compared by the characters that they read. Of a sweep,
also of one that still runs: the best setting and what it costs, quality against arithmetic and speed, what each knob
does, rankings at equal steps and at equal time, and what became of every trial.

Of a fine-tuned run: its scores as it learned, the scores of each label and which labels it confuses, and some of its
predictions beside the right answers; several are compared in a table.

Of each pretraining run and of the best trial of a sweep that has ended: what the model guesses for hidden pieces of a
fixed sample of held-out windows. Its data must be where it was trained on them, or among the folders.

Example:
  tokenfree report data/en runs/tiny sweeps/knobs --output report.html
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN [RUN ...] --output FILE.html`."""
    parser.add_argument("folders", metavar="RUN", nargs="+", help="folders of runs, sweeps or data directories")
    parser.add_argument("--output", metavar="FILE.html", required=True, help="the page to write")


def run(args: argparse.Namespace) -> int:
    """Write the page and name it."""
    from tokenfree.workflows.report.write import write_report
    from tokenfree.workflows.terminal.next_command import next_command

    page = write_report(args.folders, args.output)
    print(f"report written to {page}")
    print(next_command("-m", "webbrowser", str(page), program="python"))
    return 0
