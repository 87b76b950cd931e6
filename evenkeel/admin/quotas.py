"""The part of the admin client that concerns quotas of clients (KIP-546).

An entity is a mapping of "user", "client-id" or "ip" to a name; None is the default, which holds
for all that have no quota of their own.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import attrs

from evenkeel.client import Client
from evenkeel.errors import refusal
from wire.messages.security import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotaEntry,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaChange,
    QuotaEntity,
)

REMOVED: Final = 0.0


@attrs.frozen
class ClientQuota:
    entity: Mapping[str, str | None]
    values: Mapping[str, float]
    """By Kafka's names: `producer_byte_rate` and others."""


class _HasClient(Protocol):
    @property
    def client(self) -> Client: ...


class QuotaAdmin:
    """Mixed into `Admin`."""

    async def quotas(self: _HasClient) -> list[ClientQuota]:
        """All quotas there are.

        Raises:
            BrokerError: if the broker refuses to tell.
        """

        async def once() -> DescribeClientQuotasResponse:
            request = DescribeClientQuotasRequest()
            node = await self.client.controller()
            return await self.client.ask(node, request, DescribeClientQuotasResponse)

        answer = await self.client.until_done("listing quotas", once)
        if answer.error_code:
            raise refusal("quotas were not reported", answer.error_code, answer.error_message)
        return [
            ClientQuota(
                {part.entity_type: part.entity_name for part in one.entity},
                {value.key: value.value for value in one.values},
            )
            for one in answer.entries or ()
        ]

    async def alter_quotas(
        self: _HasClient, entity: Mapping[str, str | None], values: Mapping[str, float | None]
    ) -> None:
        """Set these quotas of an entity; None takes one back.

        Raises:
            BrokerError: if the broker refuses the entity or a value.
        """
        named = [QuotaEntity(kind, name) for kind, name in entity.items()]
        changes = [
            QuotaChange(key, REMOVED if value is None else value, value is None)
            for key, value in values.items()
        ]
        request = AlterClientQuotasRequest([AlterQuotaEntry(named, changes)])

        async def once() -> None:
            node = await self.client.controller()
            answer = await self.client.ask(node, request, AlterClientQuotasResponse)
            for one in answer.entries:
                if one.error_code:
                    raise refusal("the quota was not changed", one.error_code, one.error_message)

        await self.client.until_done("changing a quota", once)
