"""The page in a real browser: a click shows the evidence, and hostile text stays text."""

import itertools
import json
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import websocket

from rackproof.harness.model import Event, Measurement
from rackproof.reports.html.render import render
from rackproof.reports.render import report as render_form
from tests.diagnostics.power.drill import drill, recorded, write

# None of these calls home: no updates, no sync, no component that asks a server for anything.
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --hide-scrollbars
--remote-debugging-port=0 --remote-allow-origins=*
""".split()
BAD = "rack0/tray00/gpu1"


class Browser:
    """One tab of a headless Chromium, spoken to over its DevTools protocol."""

    def __init__(self, port: int) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT"
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            address = json.load(answer)["webSocketDebuggerUrl"]
        self.socket = websocket.create_connection(address, timeout=60)
        self.numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Network", "Log", "Runtime"):
            self(f"{domain}.enable")
        self("Page.setLifecycleEventsEnabled", enabled=True)

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self.events.append(message)

    def open(self, address: str) -> None:
        self("Page.navigate", url="about:blank")
        self.events.clear()
        loader = self("Page.navigate", url=address)["loaderId"]
        while not any(self.loaded(event, loader) for event in self.events):
            self.events.append(json.loads(self.socket.recv()))

    @staticmethod
    def loaded(event: dict[str, Any], loader: str) -> bool:
        about = event.get("params", {})
        return about.get("name") == "load" and about.get("loaderId") == loader

    def value(self, expression: str) -> Any:
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click with the mouse, in the middle of what `selector` finds."""
        quoted = json.dumps(selector)
        self.value(f"document.querySelector({quoted}).scrollIntoView({{block: 'center'}})")
        box = self.value(
            f"(b => [b.x + b.width / 2, b.y + b.height / 2])"
            f"(document.querySelector({quoted}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left",
                 clickCount=1)  # fmt: skip

    def press(self, key: str) -> None:
        """Press and let go a named key."""
        code = {"Enter": 13, "Escape": 27}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                 **(text if kind == "keyDown" else {}))  # fmt: skip

    def width(self, pixels: int, height: int = 844) -> None:
        self("Emulation.setDeviceMetricsOverride", width=pixels, height=height,
             deviceScaleFactor=1, mobile=pixels < 600)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tool: Callable[..., str]) -> Iterator[Browser]:
    """A headless Chromium for the tests of this file."""
    chromium = tool("chromium")
    with tempfile.TemporaryDirectory() as profile, subprocess.Popen(
        [chromium, *FLAGS, f"--user-data-dir={profile}"], stderr=subprocess.PIPE, text=True
    ) as child:  # fmt: skip
        assert child.stderr is not None
        said = ""
        for said in child.stderr:
            if "DevTools listening on" in said:
                break
        else:
            pytest.fail(f"chromium did not start: {said}")
        page = Browser(int(said.split("127.0.0.1:")[1].split("/")[0]))
        yield page
        with suppress(websocket.WebSocketException, OSError):
            page("Browser.close")
        page.socket.close()
        child.stderr.read()
        child.wait(60)


@pytest.fixture
def page(run_of: Any, tmp_path: Path) -> Callable[[Any], str]:
    """`page(case)` writes a report and returns its address."""

    def write(case: Any) -> str:
        record, judgement = run_of(case)
        path = tmp_path / "report.html"
        path.write_text(render(record, judgement, fingerprint="ab" * 32, name="run"), "utf-8")
        return path.as_uri()

    return write


def panel(browser: Browser) -> str:
    text = browser.value(
        "document.getElementById('panel').hidden ? '' : document.getElementById('panel').innerText"
    )
    return str(text)


def test_a_click_on_a_gpu_shows_its_evidence(browser, page, failing) -> None:
    browser.width(1280)
    browser.open(page(failing(trays=None)))
    assert panel(browser) == ""
    browser.click(f'a.cell[data-part="{BAD}"]')
    text = panel(browser)
    assert BAD in text
    assert "1650000000001" in text
    assert "memory.march: ecc.corrected.delta" in text
    assert "63, 63, 64 errors" in text
    assert "≤ 0 errors" in text
    assert "Contained memory error" in text
    assert "inventory: nvlink.active" in text
    assert "18 of 18 PASS" in text
    assert browser.value("location.hash") == f"#{BAD}"
    browser.click('a.cell[data-part="rack0/tray17/gpu3"]')
    assert "rack0/tray17/gpu3" in panel(browser)
    assert "63, 63, 64" not in panel(browser)


def test_the_keyboard_opens_and_closes_the_evidence(browser, page, failing) -> None:
    browser.width(1280)
    browser.open(page(failing()))
    browser.value("document.querySelector('a.cell[data-part=\"rack0/tray00/gpu2\"]').focus()")
    browser.press("Enter")
    assert "rack0/tray00/gpu2" in panel(browser)
    assert browser.value("document.activeElement.id") == "panel"
    browser.press("Escape")
    assert panel(browser) == ""
    assert browser.value("document.activeElement.dataset.part") == "rack0/tray00/gpu2"


def test_an_address_with_a_fragment_opens_that_gpu(browser, page, failing) -> None:
    address = page(failing())
    browser.open(f"{address}#{BAD}")
    assert "63, 63, 64 errors" in panel(browser)
    browser.open(f"{address}#rack0/tray99/gpu1")
    assert panel(browser) == ""
    browser.open(f"{address}#%E0%A4%A")
    assert panel(browser) == ""


def test_every_gpu_of_the_rack_is_drawn_and_can_be_opened(browser, page, case) -> None:
    browser.open(page(case(trays=None)))
    assert browser.value("document.querySelectorAll('a.cell.compute').length") == 72
    assert browser.value("document.querySelectorAll('.cell.switch').length") == 18
    rows = browser.value("[...document.querySelectorAll('.rack .name')].map(n => n.textContent)")
    assert rows[0] == "tray 17"
    assert rows[-1] == "tray 00"
    assert rows[10:19] == [f"sw {n}" for n in reversed(range(9))]


@pytest.mark.parametrize("pixels", [320, 390, 768, 1280])
def test_no_page_is_wider_than_its_screen(browser, page, failing, pixels) -> None:
    browser.width(pixels)
    for rack, trays in (("gb300-nvl72", None), ("catalina", None)):
        browser.open(page(failing(rack=rack, trays=trays)))
        if rack == "gb300-nvl72":
            browser.click(f'a.cell[data-part="{BAD}"]')
            assert BAD in panel(browser)
        width = browser.value("document.documentElement.scrollWidth")
        assert width <= browser.value("innerWidth")


HOSTILE = (
    "</script><script>window.owned = 1</script>\"><img src=x onerror='window.owned = 2'>\u202e"
)


def test_hostile_text_stays_text(browser, page, case) -> None:
    serial = {"gpu.serial": HOSTILE, "driver.version": HOSTILE + "{{ 7 * 7 }}"}
    events = [Event(BAD, "xid.79", HOSTILE + "\x1b[31m\x00", 1.0)]
    hostile = case(rack="gb300-nvl72", text=serial, events=events, problems=[HOSTILE],
                   limits='[[golden]]\nitem = "driver"\nvalue = "<b>1</b>"\n'
                   '[[waiver]]\nserial = "<i>2</i>"\ncheck = "*"\nuntil = 2099-01-01\n'
                   'owner = "<u>3</u>"\nreason = "<s>4</s>"\n')  # fmt: skip
    browser.open(page(hostile))
    browser.click(f'a.cell[data-part="{BAD}"]')
    assert "<img src=x onerror=" in panel(browser)
    assert browser.value("typeof window.owned") == "undefined"
    assert browser.value("document.querySelectorAll('img, script, u, s').length") == 2
    assert browser.value("document.querySelectorAll('i:not(.cell i)').length") == 0
    text = browser.value("document.body.innerText")
    assert "⟨U+202E⟩" in text
    assert "\u202e" not in text
    assert "⟨U+001B⟩[31m⟨U+0000⟩" in panel(browser)
    assert "{{ 7 * 7 }}" in text


def test_nothing_is_fetched_and_nothing_is_refused(browser, page, failing) -> None:
    browser.open(page(failing(trays=None)))
    browser.click(f'a.cell[data-part="{BAD}"]')
    asked = [
        e["params"]["request"]["url"]
        for e in browser.events
        if e.get("method") == "Network.requestWillBeSent"
    ]
    assert [a for a in asked if not a.startswith(("file:", "about:"))] == []
    assert len([a for a in asked if a.startswith("file:")]) == 1
    complaints = [e for e in browser.events if e.get("method") == "Log.entryAdded"]
    thrown = [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"]
    assert complaints == thrown == []


def test_the_policy_refuses_a_foreign_script(browser, page, case) -> None:
    browser.open(page(case()))
    browser.value("document.body.append(Object.assign(document.createElement('script'),"
                  " {textContent: 'window.owned = 3'}))")  # fmt: skip
    assert browser.value("typeof window.owned") == "undefined"


def test_without_script_a_gpu_leads_to_its_row(browser, page, failing) -> None:
    browser("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page(failing()))
        document = browser("DOM.getDocument")["root"]["nodeId"]
        for selector in (f'a.cell[href="#{BAD}"]', f'tr[id="{BAD}"]', ".findings td"):
            assert browser("DOM.querySelector", nodeId=document, selector=selector)["nodeId"]
        hidden = browser("DOM.querySelector", nodeId=document, selector="#panel[hidden]")
        assert hidden["nodeId"]
    finally:
        browser("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("pixels", [320, 400, 1280])
def test_the_page_of_a_drill_is_drawn_and_fits(browser, drill_run, tmp_path, evil, pixels) -> None:
    run = drill_run(tmp_path / "run", evil)
    path = render_form(run, "html", None)
    browser.width(pixels)
    browser.open(path.as_uri())
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    boxes = "[...document.querySelectorAll('.drawn svg')].map(s => s.getBoundingClientRect())"
    shown = f"{boxes}.filter(box => box.width > 200)"
    assert browser.value(f"{shown}.length") == 2
    assert browser.value(f"{shown}.every(box => box.right <= innerWidth)")
    assert browser.value("getComputedStyle(document.querySelector('.steps')).fill") == "none"
    assert not [event for event in browser.events if event["method"] == "Log.entryAdded"]


@pytest.mark.parametrize("pixels", [320, 420, 1200])
def test_the_picture_of_a_power_step_fits_its_screen(browser, run_of, case, tmp_path, pixels):
    waves = [{"f": 1.0, "t": [0.1, 0.3, 0.6, 0.9], "raw": [9e4, 1e5, 2e4, 1e4],
              "mains": [6e4, 7e4, 6e4, None]}]  # fmt: skip
    body = {"edge": {"t": [0.0, 0.05], "raw": [1e4, 9e4], "mains": [5e4, 6e4]}, "waves": waves,
            "lines": {"raw": [[1.0, 5e4]], "mains": [[1.0, 2e4]]},
            "looks": {"t": [0.0, 9.0], "charge": [0.5, 0.6], "strain": [0, 0.2]}}  # fmt: skip
    text = json.dumps(body)
    made, judgement = run_of(case())
    seen = Measurement("power.step", "rack0/power", "power.step.trace", text, "text")
    path = tmp_path / "report.html"
    made = replace(made, seen=[*made.seen, seen])
    path.write_text(render(made, judgement, fingerprint="ab" * 32, name="run"), "utf-8")
    browser.width(pixels)
    browser.open(path.as_uri())
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    boxes = "[...document.querySelectorAll('.chart > svg')].map(s => s.getBoundingClientRect())"
    assert browser.value(f"{boxes}.length") == 4
    assert browser.value(f"{boxes}.every(box => box.width > 250 && box.right <= innerWidth)")
    assert browser.value("getComputedStyle(document.querySelector('.firm path')).fill") == "none"
    assert browser.value("getComputedStyle(document.querySelector('.firm path')).stroke") != "none"
    assert not [event for event in browser.events if event.get("method") == "Log.entryAdded"]


@pytest.mark.parametrize("pixels", [320, 420, 1200])
def test_the_page_of_a_power_drill_is_drawn_and_fits(browser, tmp_path, pixels) -> None:
    run = write(tmp_path / "run", recorded(*drill(("limit -20 %", "sag"))))
    path = render_form(run, "html", None)
    browser.width(pixels)
    browser.open(path.as_uri())
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    boxes = "[...document.querySelectorAll('.dimming svg[role=img]')]"
    boxes += ".map(s => s.getBoundingClientRect()).filter(box => box.width > 200)"
    assert browser.value(f"{boxes}.length") == 3  # rack, row and site
    assert browser.value(f"{boxes}.every(box => box.right <= innerWidth)")
    style = "getComputedStyle(document.querySelector('.dimming .p-{}'))"
    assert browser.value(f"{style.format('one')}.fill") == "none"
    assert browser.value(f"{style.format('one')}.stroke") != "none"
    assert browser.value(f"{style.format('band')}.fill") != "none"
    texts = "[...document.querySelectorAll('.dimming text')].map(t => t.getBoundingClientRect())"
    shown = f"{texts}.filter(box => box.width)"
    assert browser.value(f"{shown}.every(box => box.left >= 0 && box.right <= innerWidth)")
    assert not [event for event in browser.events if event["method"] == "Log.entryAdded"]
