"""The evaluation of the classifier as text: in a terminal, and as a page in Markdown.

In: the JSON of evaluate-classifier (rackproof.evaluation/1). Out: lines on a given file, the
verdict last; or the text of a page. Nothing is decided here.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rackproof.reports.terminal import Page
from rackproof.reports.words import counted

MATCHED, REST = "matched", "misspecified"
CAUSES = {
    "app": "app", "driver": "driver", "transient": "transient", "persistent": "GPU persistent",
    "intermittent": "GPU intermittent", "link": "link or slot", "switch": "switch",
    "host": "host, power, cooling", "nic": "NIC",
}  # fmt: skip
LABELS = {**CAUSES, "open": "left open", "unseen": "not seen"}
WORLDS = {
    MATCHED: "the published rates that the classifier's own tables rest on: read it as a ceiling",
    "priors-low": "odds of faults that outlast a reset a third of that",
    "priors-high": "odds of faults that outlast a reset three times that",
    "hits-low": "faults show less often in a run",
    "hits-high": "faults show more often in a run",
    "lost-lines": "three of ten lines of every log are lost",
    "skewed-clocks": "machines' clocks are a minute apart (standard deviation)",
    "no-xid": "only burns and the job speak: no line of the driver or of the kernel about a GPU",
    "storms": "every fault of a link or a bus has other GPUs complain; ten times the noise",
    "false-passes": "burns never see six of ten GPUs that are bad",
    "lemons": "one GPU in 20 has thirty times the incidents with no present defect",
    "all-at-once": "much of the above together; tuned on by nobody",
    "sticky": "resets cure less, more waits for them, seats cure more; tuned on by nobody",
    "rough": "faults show seldom and flap, a third of the log is lost; written last of all",
}
Row = Sequence[str]


# --- the terminal ------------------------------------------------------------------------------
def head(seed: int, cases: int, worlds: Sequence[str], file: TextIO) -> None:
    """Say what will be drawn."""
    page = Page(file)
    page.line("evaluate-classifier: incidents are drawn, their truth is known", style="bold")
    page.line(
        f"seed {seed}: {counted(cases, 'incident')} in each of {counted(len(worlds), 'world')}"
    )
    file.flush()


def conclusion(body: Mapping[str, Any], out: Path | None, file: TextIO) -> None:
    """Show losses and rates, and the verdict."""
    page = Page(file)
    page.title("Mean loss in GPU-hours, tests included")
    for line in aligned(losses(body)):
        page.whole(line)
    page.title("How often a cause was named as it is")
    for line in aligned(recalls(body)):
        page.whole(line)
    page.console.print()
    if out is not None:
        page.line(f"written: {out}")
    page.verdict(str(body["verdict"]), sentence(body))
    file.flush()


def aligned(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table, columns aligned."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip()
            for row in rows]  # fmt: skip


def sentence(body: Mapping[str, Any]) -> str:
    """Return the sentence beside the verdict."""
    parts = []
    for name, score in ((MATCHED, body["worlds"][MATCHED]), (REST, body[REST])):
        own = score["policies"][0]["loss"]
        beaten = sum(entry["better"] for entry in score["against"])
        parts.append(f"{name} {own:.1f} GPU-hours, better than {beaten} of "
                     f"{len(score['against'])} baselines beyond a tie")  # fmt: skip
    return "; ".join(parts)


# --- the tables --------------------------------------------------------------------------------
def scores(body: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (name, scores) of the matched world, of the others together, then of each."""
    rest = [(name, score) for name, score in body["worlds"].items() if name != MATCHED]
    return [(MATCHED, body["worlds"][MATCHED]), (REST, body[REST]), *rest]


def losses(body: Mapping[str, Any]) -> list[Row]:
    """Return the table of mean losses: a row a world, the differences with their intervals."""
    names = [policy["name"] for policy in body[REST]["policies"]]
    head = ["world", names[0], *(title for name in names[1:] for title in (name, "less by"))]
    rows: list[Row] = [head]
    for name, score in scores(body):
        row = [name, f"{score['policies'][0]['loss']:.1f}"]
        for policy, entry in zip(score["policies"][1:], score["against"], strict=True):
            gap = f"{-entry['difference']:.1f} ({-entry['high']:.1f} to {-entry['low']:.1f})"
            row += [f"{policy['loss']:.1f}", gap]
        rows.append(row)
    return rows


def percent(part: Mapping[str, Any]) -> str:
    """Return a share with its interval in percent."""
    if part["share"] is None:
        return "–"
    return f"{part['share']:.2f} ({part['low']:.2f}–{part['high']:.2f})"


def seldom(part: Mapping[str, Any]) -> str:
    """Return a small share as a count, with its interval to three places."""
    return f"{part['count']} of {part['of']} ({part['low']:.3f}–{part['high']:.3f})"


def recalls(body: Mapping[str, Any]) -> list[Row]:
    """Return how often each cause was named, matched beside misspecified."""
    rows: list[Row] = [["cause", MATCHED, "of", REST, "of"]]
    pair = [body["worlds"][MATCHED]["policies"][0], body[REST]["policies"][0]]
    for cause, words in CAUSES.items():
        cells = [(percent(p["recall"][cause]), str(p["recall"][cause]["of"])) for p in pair]
        rows.append([words, *(cell for two in cells for cell in two)])
    watched = [(percent(p["intermittent_watched"]), str(p["intermittent_watched"]["of"]))
               for p in pair]  # fmt: skip
    rows.append(["GPU intermittent → watch", *(cell for two in watched for cell in two)])
    return rows


def rates(score: Mapping[str, Any]) -> list[Row]:
    """Return what each policy does in one world: rates with intervals, and the hours of tests."""
    rows: list[Row] = [["policy", "variant", "cause named", "component named", "false RMA",
                        "missed persistent", "tests", "GPU-h of tests", "mean loss"]]  # fmt: skip
    rows += [
        [p["name"], p["variant"] or "–", percent(p["cause"]), percent(p["component"]),
         seldom(p["false_rma"]), percent(p["missed_persistent"]), f"{p['asked']:.1f}",
         f"{p['tests']:.2f}", f"{p['loss']:.2f}"]
        for p in score["policies"]
    ]  # fmt: skip
    return rows


def confusion(score: Mapping[str, Any]) -> list[Row]:
    """Return what was made of each cause, as counts."""
    columns = [label for label in LABELS
               if any(label in row for row in score["confusion"].values())]  # fmt: skip
    rows: list[Row] = [["true \\ named", *(LABELS[c] for c in columns), "named as it is"]]
    for cause, words in CAUSES.items():
        counts = score["confusion"][cause]
        cells = [str(counts.get(column, 0) or "·") for column in columns]
        rows.append([words, *cells, percent(score["policies"][0]["recall"][cause])])
    return rows


def components(score: Mapping[str, Any]) -> list[Row]:
    """Return how often each component was named."""
    rows: list[Row] = [["true component", "named as it is", "of", "instead, most often"]]
    for name, entry in score["components"].items():
        instead = ", ".join(f"{word} {count}" for word, count in entry["instead"].items())
        rows.append([name, percent(entry), str(entry["of"]), instead or "–"])
    return rows


def bins(score: Mapping[str, Any]) -> list[Row]:
    """Return the bins of confidence: how sure, and how often right."""
    rows: list[Row] = [["confidence", "cases", "mean", "right"]]
    rows += [
        [
            f"{b['low']:.1f}–{b['high']:.1f}",
            str(b["of"]),
            f"{b['sure']:.2f}",
            f"{b['share']:.2f} ({b['from']:.2f}–{b['to']:.2f})",
        ]
        for b in score["calibration"].get("bins", ())
    ]
    return rows


# --- the page ----------------------------------------------------------------------------------
_METHOD = (
    "The injector is written apart from the classifier and has its own parameters; every policy "
    "meets the same incidents with the same answers in store. Intervals are of 95 %: Wilson's for "
    "shares, a bootstrap over the pairs for differences. Of each baseline the variant is taken "
    "that lost least on these very incidents, with hindsight, which favours it. Losses are those "
    "of the evaluation's own table, the same for all. What is shown for `matched` comes from the "
    "published rates that the classifier's own tables rest on too: **it is a ceiling**, and no "
    "forecast for a fleet."
)
_LESS = "`less by` is how much less the classifier loses; a tie is excluded where 0 is outside."


def _markdown(rows: Sequence[Row]) -> list[str]:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def page(body: Mapping[str, Any], facts: Iterable[str] = ()) -> str:
    """Return the evaluation as a page in Markdown; `facts` are lines that stand below its title."""
    lines = ["# The classifier against faults whose truth is known", "", *facts, ""]
    lines += [f"**{body['verdict']}**: {sentence(body)}.", ""]
    seeds = f"Seed {body['seed']}, {counted(body['cases'], 'incident')} in each of "
    lines += [f"{seeds}{counted(len(body['worlds']), 'world')}. {_METHOD}", ""]
    lines += ["## Mean loss, GPU-hours a case, tests included", "", _LESS, ""]
    lines += [*_markdown(losses(body)), "", "## How often a cause is named as it is", ""]
    lines += [*_markdown(recalls(body)), ""]
    for name, score in scores(body):
        lines += _world(name, score, whole=name in (MATCHED, REST))
    return "\n".join(lines)


def _world(name: str, score: Mapping[str, Any], *, whole: bool) -> list[str]:
    about = WORLDS.get(name, "all worlds below together")
    lines = [f"## {name}: {about}", "", *_markdown(rates(score)), ""]
    if not whole:
        return lines
    calibration = score["calibration"]
    lines += ["What is named for what is true:", "", *_markdown(confusion(score)), ""]
    lines += ["The component, where the root is named at its place:", ""]
    lines += [*_markdown(components(score)), ""]
    if calibration["of"]:
        brier, base = calibration["brier"], calibration["brier_of_base_rates"]
        told = (
            f"Beliefs over the nine causes: Brier score {brier:.3f} (0 is best, 2 is worst; "
            f"{base:.3f} for one who knows the base rates alone). How often the likeliest cause is "
            "right, by how sure of it:"
        )
        lines += [told, "", *_markdown(bins(score)), ""]
    return lines
