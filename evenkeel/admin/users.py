"""The admin client's part about users with passwords: SCRAM credentials (KIP-554).

A password is salted and hashed here: the cluster gets the salted password, and keeps keys that are
made from it, with which nobody can log in.
"""

import os
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from evenkeel.client import Client
from evenkeel.errors import refusal
from wire.error_codes import ErrorCode
from wire.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramUserName,
)
from wire.scram import ITERATIONS_MIN, ScramMechanism, salted_password

SALT_BYTES: Final = 16


@attrs.frozen
class UserCredentials:
    """A user and the mechanisms it has a password for, each with its iterations."""

    name: str
    mechanisms: Mapping[str, int]


class _HasClient(Protocol):
    @property
    def client(self) -> Client: ...


class UserAdmin:
    """Mixed into `Admin`."""

    async def users(self: _HasClient, names: Collection[str] = ()) -> list[UserCredentials]:
        """These users, as far as they exist, or all.

        Raises:
            BrokerError: if the broker refuses to tell.
        """
        wanted = [ScramUserName(name) for name in names] or None

        async def once() -> list[UserCredentials]:
            request = DescribeUserScramCredentialsRequest(wanted)
            node = await self.client.controller()
            answer = await self.client.ask(node, request, DescribeUserScramCredentialsResponse)
            if answer.error_code:
                raise refusal("users were not reported", answer.error_code, answer.error_message)
            found = []
            for one in answer.results:
                if one.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                    continue
                if one.error_code:
                    what = f"user '{one.user}' was not reported"
                    raise refusal(what, one.error_code, one.error_message)
                mechanisms = {
                    ScramMechanism(info.mechanism).sasl_name: info.iterations
                    for info in one.credential_infos
                }
                found.append(UserCredentials(one.user, mechanisms))
            return found

        return await self.client.until_done("listing users", once)

    async def set_password(
        self: _HasClient,
        name: str,
        password: str,
        mechanisms: Collection[ScramMechanism] = (ScramMechanism.SHA_512,),
        *,
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """Give a user this password, for these mechanisms; a new user is made by that. Connections
        that came in with another password of it are cut off.

        Raises:
            BrokerError: if the broker refuses.
        """
        upsertions = []
        for mechanism in mechanisms:
            salt = os.urandom(SALT_BYTES)
            salted = await trio.to_thread.run_sync(
                partial(salted_password, mechanism, password, salt, iterations)
            )
            upsertions.append(ScramCredentialUpsertion(name, mechanism, iterations, salt, salted))
        await _alter(
            self.client, name, AlterUserScramCredentialsRequest(upsertions=upsertions), "changed"
        )

    async def delete_password(
        self: _HasClient, name: str, mechanisms: Collection[ScramMechanism]
    ) -> None:
        """Take the user's password for these mechanisms away; without any the user is gone.

        Raises:
            BrokerError: RESOURCE_NOT_FOUND if there is none, or if the broker refuses.
        """
        deletions = [ScramCredentialDeletion(name, mechanism) for mechanism in mechanisms]
        await _alter(
            self.client, name, AlterUserScramCredentialsRequest(deletions=deletions), "deleted"
        )


async def _alter(
    client: Client, name: str, request: AlterUserScramCredentialsRequest, done: str
) -> None:
    async def once() -> None:
        node = await client.controller()
        answer = await client.ask(node, request, AlterUserScramCredentialsResponse)
        for one in answer.results:
            if one.error_code:
                what = f"user '{name}' was not {done}"
                raise refusal(what, one.error_code, one.error_message)

    await client.until_done(f"user '{name}' was not {done}", once)
