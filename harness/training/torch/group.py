"""gloo under torchft, and who is in the quorum: what torchft tells its process group, kept.

torchft's manager says how many take part, and not who; it hands the numbers of all members to
`configure`, in the order of their ranks.
"""

from datetime import timedelta
from typing import Any

from torchft.process_group import ProcessGroupGloo


class Group(ProcessGroupGloo):  # type: ignore[misc] # typed as Any, torch installed or not
    """`ranked` are the numbers of the members in the order of their ranks, `quorum` its id."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(timeout)
        self.ranked: list[int] = []
        self.quorum = -1

    @property
    def members(self) -> list[int]:
        """Numbers of those in the quorum, ascending."""
        return sorted(set(self.ranked))

    def configure(self, *given: Any, **named: Any) -> None:
        """Note store_addr, replica_id, rank, world, QUORUM, group rank, group world, RANKS."""
        self.quorum, self.ranked = int(given[4]), [int(rank) for rank in given[7]]
        super().configure(*given, **named)

    def leave(self, error: BaseException) -> None:
        """Close our connections after an error, so that the others see it at once as well.

        At three replicas and more one of them may wait for us, and not for who is gone. gloo closes
        when nobody holds the group any more, and the frames of the error's traceback do.
        """
        error.__traceback__ = None
        self.shutdown()
