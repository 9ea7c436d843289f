"""What a person reads of `spares`: who gets which spare, what stays exposed, how many are needed.

In: the JSON of `spares` (rackproof.spares/1). Out: lines on a given file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rackproof.reports.terminal import SHOWN, Page
from rackproof.reports.words import counted

Row = Mapping[str, Any]
SURE = 0.9999
DECISIONS = {
    "keep": "keep it in use",
    "watch": "keep it in use, soak it every night for 28 days",
    "retest": "burn it again",
    "reset": "reset the GPU",
    "reboot": "reboot the node",
    "update-software": "bring its software to the wanted version",
    "swap-tray": "a spare tray takes its place",
    "swap-gpu": "a GPU of a spare tray takes its place; its tray stays in use",
    "drop-tray": "take its tray out; the job goes on narrower",
    "move-rack": "move the job to a spare rack",
    "repair-link": "repair the link",
    "repair-switch": "repair the switch tray, with the NVLink domain down",
    "repair-site": "repair power or cooling at the place",
    "tray-out": "its tray is out of use",
    "rack-out": "its rack is out of use",
}


def _share(value: float) -> str:
    """Return a share in percent; what would round to 100 % as how much is missing."""
    return f"{100 * value:.2f} %" if value in (0.0, 1.0) or value < SURE else f"1 - {1 - value:.1e}"


def _table(page: Page, rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        page.whole("  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip())


def _decisions(page: Page, rows: Sequence[Row]) -> None:
    page.title("Decisions, the surest fault first")
    if not rows:
        page.line("no root of a fault: nothing needs a spare", indent="  ")
    for row in rows[:SHOWN]:
        serial = f", serial {row['serial']}" if row["serial"] else ""
        what = f"{row['component']}, {row['persistence']}, lasts with {row['lasting']:.2f}"
        page.line(f"{row['rack']}: {row['subject']}{serial}: {what}", indent="  ", hang="    ")
        style = "red" if row["exposed"] else ""
        done = DECISIONS.get(row["decision"], row["decision"])
        page.line(f"{row['decision']}: {done}; {row['why']}", indent="    ", hang="      ",
                  style=style)  # fmt: skip
        if row["lost_gpu_hours"] is not None and row["instead"]:
            others = ", ".join(f"{name} {cost:g}" for name, cost in row["instead"].items())
            text = f"expected loss {row['lost_gpu_hours']:g} GPU-hours; instead: {others}"
            page.line(text, indent="    ", hang="      ")
    if len(rows) > SHOWN:
        page.line(f"and {len(rows) - SHOWN} more, see --json", indent="  ")


def _planning(page: Page, plan: Row) -> None:
    page.title(f"Planning: {counted(plan['racks'], 'rack')} for {plan['days']:g} days")
    page.line(f"{plan['rate']:.3g} failures per GPU-hour ({plan['rate_source']}), of which"
              f" {100 * plan['persistent']:.0f} % last; {plan['repair_hours']:g} h until a tray is"
              " back", indent="  ", hang="    ")  # fmt: skip
    page.line(f"expected: {plan['failures']:.1f} failures,"
              f" {plan['lasting_failures']:.2f} that last", indent="  ")  # fmt: skip
    head = ("spare trays a rack", "GPUs in use", "rack has enough", "all racks have")
    rows = [
        (str(r["spare_trays"]), str(r["in_use"]), _share(r["usable"]), _share(r["all_usable"]))
        for r in plan["in_rack"]
    ]
    _table(page, [head, *rows])
    sure = f"{100 * plan['confidence']:g} %"
    page.line(f"trays in stock for {sure}: {plan['stock_without_replenishment']} for the whole time"
              f" without replenishment, {plan['stock_with_replenishment']} where each comes back"
              " after its repair", indent="  ", hang="    ")  # fmt: skip
    page.line(f"spare racks: {_share(plan['hall_covers'])} of the time those that are left cover"
              f" all racks that have too few trays", indent="  ", hang="    ")  # fmt: skip
    useful = plan["useful_time"]
    minutes = 60 * useful["interval_hours"]
    page.line(f"one job on {useful['gpus']} GPUs: checkpoint every {minutes:.1f} min,"
              f" useful time {_share(useful['share'])}", indent="  ", hang="    ")  # fmt: skip
    seen = plan["simulation"]
    agrees = "agrees with" if plan["agrees"] else "DISAGREES with"
    page.line(f"simulation of {seen['windows']} windows ({seen['events']} failures and repairs)"
              f" {agrees} the closed forms: rack has enough {_share(seen['usable'])}, stock"
              f" suffices {_share(seen['covered'])}", indent="  ", hang="    ")  # fmt: skip


def _blast(page: Page, rows: Sequence[Row]) -> None:
    page.title("How far one fault reaches, at the same rates")
    head = ("layout", "in use", "GPUs stopped by one", "GPU-hours lost a month",
            "out for one that lasts", "has enough")  # fmt: skip
    cells = [
        (r["layout"], f"{r['in_use']} of {r['gpus']}", str(r["stopped"]), f"{r['lost']:.1f}",
         str(r["out"]), _share(r["usable"]))
        for r in rows
    ]  # fmt: skip
    _table(page, [head, *cells])


def _sentence(body: Row) -> str:
    exposed = body["exposed"]
    if exposed:
        worst = exposed[0]
        more = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
        return f"exposed for want of spares: {worst['subject']} of {worst['rack']}{more}"
    unjudged = [row["run"] for row in body["stock"] if row["unjudged"]]
    if unjudged:
        return f"{unjudged[0]} could not all be judged: what it hides may need a spare"
    partial = sum(bool(row["left_out"]) for row in body["stock"])
    left = f"; burns were left out of {counted(partial, 'run')}" if partial else ""
    return f"{counted(len(body['decisions']), 'root')}, and nothing stays exposed{left}"


def spares(body: Row, file: TextIO) -> None:
    """Say what the JSON of `spares` says; the verdict comes last."""
    page = Page(file)
    page.line("Recommended; nothing is moved, drained or reset", style="bold")
    for row in body["stock"]:
        page.line(f"{row['run']}: {row['rack']}, {row['gpus_in_use']} GPUs in use,"
                  f" {row['spare_gpus_left']} of {row['spare_gpus']} spare GPUs left",
                  indent="  ", hang="    ")  # fmt: skip
    for row in body["older"]:
        page.line(f"{row['run']}: an older run of the same rack; {row['for']} counts", indent="  ",
                  hang="    ")  # fmt: skip
    page.line(f"hall: {body['spare_racks_left']} of {counted(body['spare_racks'], 'spare rack')}"
              " left", indent="  ")  # fmt: skip
    _decisions(page, body["decisions"])
    _planning(page, body["planning"])
    _blast(page, body["planning"]["blast_radius"])
    page.verdict(str(body["verdict"]), _sentence(body))
    file.flush()
