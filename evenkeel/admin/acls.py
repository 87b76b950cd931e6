"""The admin client's part about what clients may do: Kafka's ACL rules.

rule = AccessRule("User:alice", Operation.READ, ResourceType.TOPIC, "orders")
await admin.create_rules([rule])
"""

from collections.abc import Collection
from typing import Protocol

import attrs

from evenkeel.client import Client
from evenkeel.errors import refusal
from wire.acls import Operation, PatternType, Permission, ResourceType
from wire.error_codes import ErrorCode
from wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)


@attrs.frozen
class AccessRule:
    """One rule. `prefixed`: the name is that of all resources which begin with it."""

    principal: str
    operation: Operation
    resource_type: ResourceType
    name: str
    prefixed: bool = False
    host: str = "*"
    allow: bool = True

    @property
    def pattern_type(self) -> PatternType:
        return PatternType.PREFIXED if self.prefixed else PatternType.LITERAL

    @property
    def permission(self) -> Permission:
        return Permission.ALLOW if self.allow else Permission.DENY


@attrs.frozen
class RuleFilter:
    """Selects rules; what is None selects all. With `matching` those whose pattern applies to
    `name`, not only those that have this very name."""

    principal: str | None = None
    operation: Operation | None = None
    resource_type: ResourceType | None = None
    name: str | None = None
    prefixed: bool | None = None
    host: str | None = None
    allow: bool | None = None
    matching: bool = False

    @classmethod
    def of(cls, rule: AccessRule) -> "RuleFilter":
        """The filter that selects this rule alone."""
        return cls(
            rule.principal,
            rule.operation,
            rule.resource_type,
            rule.name,
            rule.prefixed,
            rule.host,
            rule.allow,
        )

    @property
    def pattern_type(self) -> PatternType:
        if self.matching:
            return PatternType.MATCH
        if self.prefixed is None:
            return PatternType.ANY
        return PatternType.PREFIXED if self.prefixed else PatternType.LITERAL

    @property
    def permission(self) -> Permission:
        if self.allow is None:
            return Permission.ANY
        return Permission.ALLOW if self.allow else Permission.DENY


class _HasClient(Protocol):
    @property
    def client(self) -> Client: ...


EVERY_RULE = RuleFilter()


class AccessAdmin:
    """Mixed into `Admin`."""

    async def list_rules(self: _HasClient, wanted: RuleFilter = EVERY_RULE) -> list[AccessRule]:
        """The rules that a filter selects.

        Raises:
            BrokerError: SECURITY_DISABLED if the cluster has no authorizer.
        """
        client = self.client
        request = DescribeAclsRequest(
            wanted.resource_type or ResourceType.ANY,
            wanted.name,
            wanted.pattern_type,
            wanted.principal,
            wanted.host,
            wanted.operation or Operation.ANY,
            wanted.permission,
        )

        async def once() -> list[AccessRule]:
            node = await client.controller()
            answer = await client.ask(node, request, DescribeAclsResponse)
            if answer.error_code != ErrorCode.NONE:
                raise refusal("rules were not reported", answer.error_code, answer.error_message)
            return [
                _rule(
                    resource.resource_type,
                    resource.resource_name,
                    resource.pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                )
                for resource in answer.resources
                for one in resource.acls
            ]

        return await client.until_done("listing rules", once)

    async def create_rules(self: _HasClient, rules: Collection[AccessRule]) -> None:
        """Add rules; those that exist already stay. They count on all living nodes when this
        returns.

        Raises:
            BrokerError: for the first that is refused. The others have been added.
        """
        client = self.client
        request = CreateAclsRequest(
            [
                AclCreation(
                    rule.resource_type,
                    rule.name,
                    rule.pattern_type,
                    rule.principal,
                    rule.host,
                    rule.operation,
                    rule.permission,
                )
                for rule in rules
            ]
        )

        async def once() -> None:
            node = await client.controller()
            answer = await client.ask(node, request, CreateAclsResponse)
            for one in answer.results:
                if one.error_code != ErrorCode.NONE:
                    raise refusal("a rule was not added", one.error_code, one.error_message)

        await client.until_done("adding rules", once)

    async def delete_rules(self: _HasClient, wanted: RuleFilter) -> list[AccessRule]:
        """Remove the rules that a filter selects; returns them. After a lost answer some may be
        missing in what is returned."""
        client = self.client
        request = DeleteAclsRequest(
            [
                DeleteAclsFilter(
                    wanted.resource_type or ResourceType.ANY,
                    wanted.name,
                    wanted.pattern_type,
                    wanted.principal,
                    wanted.host,
                    wanted.operation or Operation.ANY,
                    wanted.permission,
                )
            ]
        )

        async def once() -> list[AccessRule]:
            node = await client.controller()
            answer = await client.ask(node, request, DeleteAclsResponse)
            (result,) = answer.filter_results
            if result.error_code != ErrorCode.NONE:
                raise refusal("no rule was removed", result.error_code, result.error_message)
            return [
                _rule(
                    one.resource_type,
                    one.resource_name,
                    one.pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                )
                for one in result.matching_acls
            ]

        return await client.until_done("removing rules", once)


def _rule(
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AccessRule:
    return AccessRule(
        principal,
        Operation(operation),
        ResourceType(resource_type),
        name,
        pattern_type == PatternType.PREFIXED,
        host,
        permission == Permission.ALLOW,
    )
