"""What the registry knows of security: a part of its image that clusters without any leave out."""

from typing import Final

import attrs

from balancer.registry.packing import Field, record
from balancer.registry.quotas import QUOTAS, Quotas


@attrs.frozen(kw_only=True)
class Security:
    quotas: Quotas = attrs.field(factory=dict)
    """Of clients (KIP-546); an empty mapping: nobody is throttled."""

    @property
    def empty(self) -> bool:
        return self == Security()


SECURITY: Final[Field[Security]] = record(Security, QUOTAS)
