"""What we conclude: which subject, which component, how lasting, who caused it, what to do."""

from dataclasses import dataclass
from typing import Any

COMPONENTS = (
    "hbm sram sm nvlink nvswitch pcie power thermal nic fabric host driver app storage data unknown"
).split()
PERSISTENCES = ("transient", "intermittent", "persistent", "undetermined")
ACTIONS = (
    "none watch retest restart-app reset-gpu reboot-node update-software check-cabling "
    "check-power check-cooling field-diag swap-to-spare move-to-spare-rack rma"
).split()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One root, or one victim of the root that has the same `case`.

    component, persistence and action are words of the contract (COMPONENTS, PERSISTENCES,
    ACTIONS); role is ``root`` or ``victim``; a victim's action is ``none``. `because` names the
    checks and events that it rests on.
    """

    subject: str
    component: str
    persistence: str
    action: str
    case: int
    because: tuple[str, ...]
    role: str = "root"
    confidence: float = 0.5
    serial: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON object."""
        return {
            "subject": self.subject,
            "serial": self.serial,
            "component": self.component,
            "persistence": self.persistence,
            "role": self.role,
            "case": self.case,
            "action": self.action,
            "confidence": round(self.confidence, 3),
            "because": list(self.because),
        }
