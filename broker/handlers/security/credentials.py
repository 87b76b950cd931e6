"""Describe- and AlterUserScramCredentials (KIP-554): users' salted keys, in the registry.

The client salts the password, so that no password crosses the network; we keep StoredKey and
ServerKey. As in Kafka a user is changed as a whole or not at all; the users of one request that are
in order are changed together.
"""

from collections import Counter
from typing import Final

from balancer.registry.commands import Command, Refused
from balancer.registry.credentials import AlterCredentials, CredentialChange
from balancer.registry.security import user_problem
from broker.handlers.topics import registry_changes
from broker.handlers.topics.registry_changes import DONE, Verdict
from broker.registry_calls import Answer
from broker.requests.context import Broker
from broker.requests.refusals import refuse_more_than
from broker.requests.request import Request
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.security import (
    AlteredScramUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
)
from wire.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, credential_of

NAMED_MAX: Final = 1_000
TIMEOUT_MS: Final = 30_000
"""The request names none."""

_KNOWN: Final = tuple(ScramMechanism)
_IN_FILE: Final = Verdict(
    ErrorCode.UNACCEPTABLE_CREDENTIAL,
    "the user is in security.bootstrap_users_file, whose password would count again: take it out "
    "of that file on every node and restart them, then delete it; or give it another password",
)


def handle_describe(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeUserScramCredentialsRequest)
    named = message.users or ()
    if refuse_more_than(NAMED_MAX, named, broker, request):
        return
    credentials = broker.registry.security.credentials
    counts = Counter(one.name for one in named) or Counter(dict.fromkeys(credentials, 1))
    results = []
    for name, times in counts.items():
        if times > 1:
            text = "the request names the user twice"
            results.append(DescribedScramUser(name, ErrorCode.DUPLICATE_RESOURCE, text))
        elif name not in credentials:
            text = "Attempt to describe a user credential that does not exist"
            results.append(DescribedScramUser(name, ErrorCode.RESOURCE_NOT_FOUND, text))
        else:
            infos = [
                ScramCredentialInfo(number, kept.iterations)
                for number, kept in credentials[name].items()
            ]
            results.append(DescribedScramUser(name, ErrorCode.NONE, None, infos))
    response = DescribeUserScramCredentialsResponse(results=results)
    request.reply.complete(encode_response(request.header, response))


def handle_alter(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, AlterUserScramCredentialsRequest)
    if refuse_more_than(NAMED_MAX, [*message.deletions, *message.upsertions], broker, request):
        return
    verdicts = _first_look(broker, message)
    changes = [
        CredentialChange(one.name, one.mechanism, None)
        for one in message.deletions
        if verdicts[one.name] == DONE
    ] + [_change(one) for one in message.upsertions if verdicts[one.name] == DONE]

    def answer(verdict: Verdict) -> None:
        results = [
            AlteredScramUser(user, *(verdict if own == DONE else own))
            for user, own in verdicts.items()
        ]
        response = AlterUserScramCredentialsResponse(results=results)
        request.reply.complete(encode_response(request.header, response))

    if not changes:
        answer(DONE)
        return
    secret = broker.new_topic_id() + broker.new_topic_id()
    command: Command = AlterCredentials(tuple(changes), secret)

    def here() -> bool:
        return all(
            broker.registry.security.credentials.get(one.user, {}).get(one.mechanism)
            == one.credential
            for one in changes
        )

    deadline = registry_changes.deadline_of(broker, TIMEOUT_MS)
    registry_changes.submit(broker, request, lambda: command, deadline, _judge, here, answer)


def _judge(answer: Answer) -> Verdict:
    result = answer.result
    if not isinstance(result, Refused):
        return DONE
    return registry_changes.refused(result)


def _first_look(broker: Broker, message: AlterUserScramCredentialsRequest) -> dict[str, Verdict]:
    """What Kafka finds wrong, by user; DONE where nothing is."""
    credentials = broker.registry.security.credentials
    verdicts: dict[str, Verdict] = {}
    times = Counter((one.name, one.mechanism) for one in message.deletions)
    times += Counter((one.name, one.mechanism) for one in message.upsertions)

    def judge(user: str, verdict: Verdict) -> None:
        if verdicts.get(user, DONE) == DONE:
            verdicts[user] = verdict

    for (user, mechanism), count in times.items():
        if count > 1:
            text = "A user credential cannot be altered twice in the same request"
            judge(user, Verdict(ErrorCode.DUPLICATE_RESOURCE, text))
        elif mechanism not in _KNOWN:
            text = "Unknown SCRAM mechanism"
            judge(user, Verdict(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text))
        elif not user:
            text = "Username must not be empty"
            judge(user, Verdict(ErrorCode.UNACCEPTABLE_CREDENTIAL, text))
    for deletion in message.deletions:
        there = deletion.mechanism in credentials.get(deletion.name, {})
        text = "Attempt to delete a user credential that does not exist"
        missing = Verdict(ErrorCode.RESOURCE_NOT_FOUND, text)
        judge(deletion.name, DONE if there else missing)
    for one in message.upsertions:
        wrong = _unacceptable(one) if one.mechanism in _KNOWN else ""
        bad = Verdict(ErrorCode.UNACCEPTABLE_CREDENTIAL, wrong)
        judge(one.name, bad if wrong else DONE)
    for user in _would_come_back(broker, message):
        judge(user, _IN_FILE)
    return verdicts


def _would_come_back(broker: Broker, message: AlterUserScramCredentialsRequest) -> set[str]:
    """Users without credentials in the registry after this, whom the file of first users would let
    in again, with the password of the first hour."""
    if broker.authentication is None:
        return set()
    left = {
        one.name: set(broker.registry.security.credentials.get(one.name, ()))
        for one in message.deletions
    }
    for one in message.deletions:
        left[one.name].discard(one.mechanism)
    given = {one.name for one in message.upsertions}
    of_file = broker.authentication.users.of_file
    return {user for user, kept in left.items() if not kept and user not in given} & {*of_file}


def _unacceptable(one: ScramCredentialUpsertion) -> str:
    if one.iterations < ITERATIONS_MIN:
        return f"Too few iterations: at least {ITERATIONS_MIN}"
    if one.iterations > ITERATIONS_MAX:
        return f"Too many iterations: at most {ITERATIONS_MAX}"
    mechanism = ScramMechanism(one.mechanism)
    if len(one.salted_password) != mechanism.key_bytes:
        return f"a salted password of {mechanism.sasl_name} has {mechanism.key_bytes} bytes"
    credential = _change(one).credential
    assert credential is not None
    return user_problem(one.name) or credential.problem(mechanism)


def _change(one: ScramCredentialUpsertion) -> CredentialChange:
    mechanism, salt = ScramMechanism(one.mechanism), bytes(one.salt)
    salted = bytes(one.salted_password)
    made = credential_of(mechanism, salted, salt, one.iterations)
    return CredentialChange(one.name, one.mechanism, made)
