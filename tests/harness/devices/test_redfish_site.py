"""What controllers describe becomes readings, and what they leave open a DeviceError."""

from contextlib import ExitStack

import pytest

from rackproof.harness.devices import redfish_site
from rackproof.harness.devices.redfish import PASSWORD, URL, USER, accesses
from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent, Unsupported

SHELVES = ("rack0/power/shelf0", "rack0/power/shelf1")
COOLING = ("rack0/cooling",)
SHELF0 = "/redfish/v1/PowerEquipment/PowerShelves/Shelf0"
CDU0 = "/redfish/v1/ThermalEquipment/CDUs/CDU0"


@pytest.fixture
def ask(site):
    """Serve trees, one controller each, and read what is planned: ``ask(SHELVES, tree)``."""
    with ExitStack() as stack:

        def asked(planned, *trees, odd=()):
            served = [stack.enter_context(site.controller(tree)) for tree in trees]
            for number, path, answer in odd:
                served[number].odd[path] = answer
            urls = " ".join(controller.url for controller in served)
            found = accesses({URL: urls, USER: "reader", PASSWORD: "x"})
            walk = redfish_site.shelves if "shelf" in planned[0] else redfish_site.cooling
            return walk(found, planned)

        yield asked


def test_shelves_are_read_in_the_order_of_their_numbers(site, ask):
    tree = site.site(0, 0)
    for name in ("Shelf10", "Shelf9"):
        site.shelf(tree, name)
    base = "/redfish/v1/PowerEquipment/PowerShelves"
    tree[f"{base}/Shelf9"]["Status"] = {"State": "Enabled", "Health": "Warning"}
    found = ask(SHELVES, tree)
    assert [found[s]["shelf.health"] for s in SHELVES] == ["warning", "ok"]
    assert found[SHELVES[1]]["shelf.supplies.bad"] == 0
    assert found[SHELVES[1]]["shelf.output"] == 7200.0


@pytest.mark.parametrize(
    ("status", "bad"),
    [
        ({"State": "Enabled", "Health": "OK"}, 0),
        ({"State": "StandbySpare", "Health": "OK"}, 0),
        ({"State": "Enabled", "Health": "Warning"}, 1),
        ({"State": "Enabled", "Health": "Critical"}, 1),
        ({"State": "Absent"}, 1),
        ({"State": "UnavailableOffline", "Health": "OK"}, 1),
        ({"State": "Enabled"}, None),
        ({"State": "Quiesced", "Health": "OK"}, None),
        ({"Health": "OK"}, None),
        ("OK", None),
        ([], None),
    ],
)
def test_a_supply_is_good_bad_or_not_known(site, ask, status, bad):
    tree = site.site(2, 0)
    tree[f"{SHELF0}/PowerSupplies/3"]["Status"] = status
    found = ask(SHELVES, tree)
    seen = found[SHELVES[0]]["shelf.supplies.bad"]
    assert seen == bad if bad is not None else isinstance(seen, DeviceError)
    assert found[SHELVES[1]]["shelf.supplies.bad"] == 0


def test_a_supply_that_gives_nothing_is_bad_whatever_it_says(site, ask):
    tree = site.site(2, 0)
    tree[f"{SHELF0}/PowerSupplies/3/Metrics"]["OutputPowerWatts"]["Reading"] = 0
    found = ask(SHELVES, tree)[SHELVES[0]]
    assert (found["shelf.supplies.bad"], found["shelf.output"]) == (1, 6000.0)


@pytest.mark.parametrize("value", [None, "1200", True, [1], {"x": 1}, 10**400])
def test_an_output_that_is_no_number_is_no_reading(site, ask, value):
    tree = site.site(2, 0)
    tree[f"{SHELF0}/PowerSupplies/3/Metrics"]["OutputPowerWatts"]["Reading"] = value
    found = ask(SHELVES, tree)[SHELVES[0]]
    assert isinstance(found["shelf.output"], DeviceError)
    assert found["shelf.supplies.bad"] == 0


def test_a_shelf_without_supplies_or_health_is_unknown(site, ask):
    tree = site.site(2, 0)
    tree[f"{SHELF0}/PowerSupplies"] = {"Members": []}
    del tree[SHELF0]["Status"]
    found = ask(SHELVES, tree)[SHELVES[0]]
    assert isinstance(found["shelf.supplies.bad"], Unsupported)
    assert isinstance(found["shelf.health"], DeviceError)


def test_a_shelf_that_is_only_a_chassis_is_found(site, ask):
    tree = site.site(1, 0)
    del tree["/redfish/v1/"]["PowerEquipment"]
    tree["/redfish/v1/"]["Chassis"] = site.link("/redfish/v1/Chassis")
    tree["/redfish/v1/Chassis"] = site.members("/redfish/v1/Chassis", "bmc", "ps")
    tree["/redfish/v1/Chassis/bmc"] = {"Id": "bmc", "ChassisType": "Module"}
    power = "/redfish/v1/Chassis/ps/PowerSubsystem"
    tree["/redfish/v1/Chassis/ps"] = {"Id": "ps", "ChassisType": "Shelf", "Status": site.WELL,
                                      "PowerSubsystem": site.link(power)}  # fmt: skip
    tree[power] = {"PowerSupplies": site.link(f"{SHELF0}/PowerSupplies")}
    assert ask(SHELVES[:1], tree)[SHELVES[0]]["shelf.supplies.bad"] == 0


# --- cooling -------------------------------------------------------------------------------------
def test_cooling_is_read(site, ask):
    found = ask(COOLING, site.site(0, 1))[COOLING[0]]
    assert dict(found) == {
        "cooling.health": "ok", "cooling.pumps.bad": 0, "cooling.flow": 180.5,
        "cooling.supply": 26.0, "cooling.leak": 0,
    }  # fmt: skip


@pytest.mark.parametrize("state", ["Warning", "Critical"])
def test_a_leak_is_seen(site, ask, state):
    tree = site.site(0, 1)
    tree[f"{CDU0}/LeakDetection/LeakDetectors/1"]["DetectorState"] = state
    assert ask(COOLING, tree)[COOLING[0]]["cooling.leak"] == 1


@pytest.mark.parametrize("state", [None, "Dry", 0])
def test_a_detector_that_says_nothing_is_no_dry_floor(site, ask, state):
    tree = site.site(0, 1)
    tree[f"{CDU0}/LeakDetection/LeakDetectors/1"]["DetectorState"] = state
    assert isinstance(ask(COOLING, tree)[COOLING[0]]["cooling.leak"], DeviceError)


def test_no_detector_at_all_is_no_dry_floor(site, ask):
    tree = site.site(0, 1)
    del tree[CDU0]["LeakDetection"]
    assert isinstance(ask(COOLING, tree)[COOLING[0]]["cooling.leak"], DeviceError)


def test_a_pump_that_stands_is_bad_and_a_spare_one_is_not(site, ask):
    tree = site.site(0, 1)
    pump = tree[f"{CDU0}/Pumps/2"]
    pump["PumpSpeedPercent"]["Reading"] = 0
    assert ask(COOLING, tree)[COOLING[0]]["cooling.pumps.bad"] == 1
    pump["Status"] = {"State": "StandbySpare", "Health": "OK"}
    assert ask(COOLING, tree)[COOLING[0]]["cooling.pumps.bad"] == 0


def test_the_coolant_of_a_return_is_not_counted_again(site, ask):
    tree = site.site(0, 1)
    way = f"{CDU0}/SecondaryCoolantConnectors"
    tree[way] = site.members(way, "1", "2")
    tree[f"{way}/2"] = {"CoolantConnectorType": "Return", "FlowLitersPerMinute": {"Reading": 180}}
    assert ask(COOLING, tree)[COOLING[0]]["cooling.flow"] == 180.5


def test_the_coolant_of_a_chassis_is_found(site, ask):
    tree = site.site(0, 1)
    root, subsystem = tree["/redfish/v1/"], "/redfish/v1/Chassis/rack/ThermalSubsystem"
    del root["ThermalEquipment"]
    root["Chassis"] = site.link("/redfish/v1/Chassis")
    tree["/redfish/v1/Chassis"] = site.members("/redfish/v1/Chassis", "rack")
    tree["/redfish/v1/Chassis/rack"] = {"ThermalSubsystem": site.link(subsystem)}
    tree[subsystem] = {"Status": site.WELL, "Pumps": site.link(f"{CDU0}/Pumps"),
                       "CoolantConnectors": site.link(f"{CDU0}/SecondaryCoolantConnectors"),
                       "LeakDetection": site.link(f"{CDU0}/LeakDetection")}  # fmt: skip
    found = ask(COOLING, tree)[COOLING[0]]
    assert (found["cooling.health"], found["cooling.flow"], found["cooling.leak"]) == (
        "ok", 180.5, 0,
    )  # fmt: skip


# --- which is which ------------------------------------------------------------------------------
def test_each_shelf_may_have_a_controller_of_its_own(site, ask):
    trees = [site.site(1, 0), site.site(1, 0), site.site(0, 1)]
    trees[1][f"{SHELF0}/PowerSupplies/0"]["Status"] = {"State": "Absent"}
    found = ask(SHELVES, *trees)
    assert [found[s]["shelf.supplies.bad"] for s in SHELVES] == [0, 1]


def test_a_controller_that_fails_takes_only_its_own_shelf_with_it(site, ask):
    trees = [site.site(1, 0), site.site(1, 0)]
    odd = [(0, "/redfish/v1/", lambda request: site.say(request, 401, b""))]
    found = ask(SHELVES, *trees, odd=odd)
    assert isinstance(found[SHELVES[0]]["shelf.health"], NotPermitted)
    assert found[SHELVES[1]]["shelf.health"] == "ok"


def test_where_nobody_knows_which_one_failed_none_is_read(site, ask):
    odd = [(0, "/redfish/v1/", lambda request: site.say(request, 500, b""))]
    with pytest.raises(DeviceError, match="HTTP 500"):
        ask(SHELVES, site.site(2, 0), odd=odd)


def test_fewer_than_planned_leaves_the_last_missing(site, ask):
    found = ask(SHELVES, site.site(1, 0))
    assert found[SHELVES[0]]["shelf.health"] == "ok"
    assert isinstance(found[SHELVES[1]]["shelf.health"], NotPresent)


def test_more_than_planned_is_not_guessed_at(site, ask):
    with pytest.raises(DeviceError, match="3 are found and 2 planned"):
        ask(SHELVES, site.site(3, 0))


# --- a tree that makes no sense ------------------------------------------------------------------
def test_pages_are_turned_and_a_loop_of_them_ends(site, ask):
    tree = site.site(2, 0)
    base = "/redfish/v1/PowerEquipment/PowerShelves"
    first, second = tree[base]["Members"]
    tree[base] = {"Members": [first], "Members@odata.nextLink": f"{base}?page=2"}
    tree[f"{base}?page=2"] = {"Members": [second, second], "Members@odata.nextLink": base}
    assert [ask(SHELVES, tree)[s]["shelf.health"] for s in SHELVES] == ["ok", "ok"]


@pytest.mark.parametrize(
    "listed",
    [None, "text", 7, [None, 3, "x", {}, {"@odata.id": 5}], {"0": {}}],
)
def test_members_that_are_none_are_no_shelves(site, ask, listed):
    tree = site.site(1, 0)
    tree["/redfish/v1/PowerEquipment/PowerShelves"] = {"Members": listed}
    found = ask(SHELVES, tree)
    assert all(isinstance(found[s]["shelf.health"], NotPresent) for s in SHELVES)


def test_a_collection_without_an_end_is_left(site, ask):
    tree = site.site(1, 0)
    base = "/redfish/v1/PowerEquipment/PowerShelves"
    tree[base] = site.members(base, *map(str, range(300)))
    with pytest.raises(DeviceError, match="more than 256 members"):
        ask(SHELVES, tree)


def test_a_link_to_elsewhere_is_not_followed(site, ask):
    tree = site.site(1, 0)
    tree["/redfish/v1/"]["PowerEquipment"] = site.link("http://203.0.113.9/redfish/v1/x")
    with pytest.raises(DeviceError) as caught:
        ask(SHELVES, tree)
    assert "203.0.113.9" not in str(caught.value)
