"""The configuration of one node: a frozen value that is always valid.

Its sources are the defaults, a TOML file, the environment (`EVENKEEL_LEASE__DURATION_MS=5000`) and
flags (`--set lease.duration_ms=5000`); a later source overrides an earlier one. Values of all
sources go through the same parsers and checks. An unknown key is an error that names the nearest
known one: a mistyped limit must not silently be no limit.

Fields check ranges, sections check relations between their fields, and `Config` checks relations
between sections; so a Config built in a test is checked like one read from a file. A message says
what is wrong, why it matters and what to do.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from paxos.entry import CONFIG_MEMBERS_MAX
from paxos.ids import NodeId
from paxos.timing import Strategy
from runtime.config.contradictions import contradictions
from runtime.config.fields import Address, ConfigError, doc_of, parse_address, show
from runtime.config.http import HttpSection, problems_of_http
from runtime.config.listeners import (
    ListenerSettings,
    TlsSection,
    as_toml,
    of_listen,
    problems,
    take,
)
from runtime.config.mechanisms import mechanism_problems
from runtime.config.oauth import OauthSection
from runtime.config.peer_tls import PeerTlsSection
from runtime.config.peer_tls import problems as problems_of_links
from runtime.config.sections import (
    NODE_ID_MAX,
    BalancerSection,
    BrokerSection,
    CatchupSection,
    GroupsSection,
    LeaseSection,
    LimitsSection,
    ListenSection,
    LogSection,
    NodeSection,
    PaxosSection,
    StorageSection,
)
from runtime.config.sections import SECTIONS as PLAIN_SECTIONS
from runtime.config.security import SecuritySection

__all__ = [
    "SECTIONS",
    "Address",
    "BalancerSection",
    "Config",
    "ConfigError",
    "load",
    "parse_address",
]

SECTIONS: Final[Mapping[str, type[Any]]] = {
    **PLAIN_SECTIONS,
    "tls": TlsSection,
    "http": HttpSection,
    "oauth": OauthSection,
    "peer_tls": PeerTlsSection,
}
LISTENERS: Final = "listeners"
ENV_PREFIX: Final = "EVENKEEL_"
CONFIG_FILE_BYTES_MAX: Final = 64 * 1024
NOT_SETTINGS: Final = ("EVENKEEL_CONTEXT", "EVENKEEL_COMMAND_CONFIG", "EVENKEEL_PASSWORD")
"""Variables of the command line (cli.clusters.contexts), which its nodes inherit."""
VALUE_CHARS_MAX: Final = 255
"""The registry's limit for host names, and enough for a path."""
CONFIG_LINE_CHARS_MAX: Final = 4096
"""tomllib needs quadratic time for a dotted key: two seconds for 30 KB of `a.a.a`."""


def _sorted_peers(peers: Mapping[NodeId, Address]) -> Mapping[NodeId, Address]:
    return MappingProxyType(dict(sorted(peers.items())))


def _check_peers(config: Any, _field: object, peers: Mapping[NodeId, Address]) -> None:  # noqa: ANN401
    if not 0 < len(peers) <= CONFIG_MEMBERS_MAX:
        most = CONFIG_MEMBERS_MAX
        raise ConfigError([f"[peers] has {len(peers)} nodes: a cluster has 1 to {most}"])
    owner: dict[Address, NodeId] = {}
    for node, address in peers.items():
        where = f"peers.{node} = {show(address)}"
        if not 1 <= node <= NODE_ID_MAX:
            raise ConfigError([f"{where}: a node id is 1 to {NODE_ID_MAX}"])
        if address in owner:
            raise ConfigError([f"{where}: node {owner[address]} has the same address"])
        if address.is_wildcard:
            raise ConfigError([f"{where}: nobody can connect to it; name the node's own address"])
        owner[address] = node


@attrs.frozen(kw_only=True)
class Config:
    node: NodeSection
    listen: ListenSection
    peers: Mapping[NodeId, Address] = attrs.field(converter=_sorted_peers, validator=_check_peers)
    groups: GroupsSection = attrs.Factory(GroupsSection)
    lease: LeaseSection = attrs.Factory(LeaseSection)
    paxos: PaxosSection = attrs.Factory(PaxosSection)
    storage: StorageSection = attrs.Factory(StorageSection)
    catchup: CatchupSection = attrs.Factory(CatchupSection)
    balancer: BalancerSection = attrs.Factory(BalancerSection)
    broker: BrokerSection = attrs.Factory(BrokerSection)
    limits: LimitsSection = attrs.Factory(LimitsSection)
    log: LogSection = attrs.Factory(LogSection)
    tls: TlsSection = attrs.Factory(TlsSection)
    peer_tls: PeerTlsSection = attrs.Factory(PeerTlsSection)
    security: SecuritySection = attrs.Factory(SecuritySection)
    http: HttpSection = attrs.Factory(HttpSection)
    oauth: OauthSection = attrs.Factory(OauthSection)
    listeners: tuple[ListenerSettings, ...] = attrs.field(default=())
    """The [[listeners]]; where there are none, `listen.kafka` is the only one."""

    def __attrs_post_init__(self) -> None:
        if self.node.id not in self.peers:
            known = ", ".join(str(node) for node in self.peers)
            raise ConfigError(
                [
                    f"node.id = {self.node.id}: not in [peers] ({known}); "
                    "[peers] lists every node of the cluster, this one included"
                ]
            )
        against = [
            *problems(self.listen, self.listeners, self.tls, self.security),
            *problems_of_http(self.listen, self.http, self.tls, self.security),
            *mechanism_problems(self.for_clients, self.security, self.oauth),
            *problems_of_links(self.listen, self.peer_tls, self.security),
            *contradictions(self.node.id, self.listen, self.peers, self.for_clients),
        ]
        if against:
            raise ConfigError(against)
        least = self.paxos.drain_ms + self.paxos.steal_settle_ms
        takes = "paxos.drain_ms + paxos.steal_settle_ms"
        if Strategy(self.balancer.strategy).waits:
            least += self.lease.duration_ms + 2 * self.lease.clock_margin_ms
            takes += f", and with balancer.strategy = {show(self.balancer.strategy)} the lease"
        if least >= self.balancer.steal_deadline_ms:
            raise ConfigError(
                [
                    f"balancer.steal_deadline_ms = {self.balancer.steal_deadline_ms}: a steal may "
                    f"take {takes}; raise it above {least} or lower those"
                ]
            )

    @property
    def for_clients(self) -> tuple[ListenerSettings, ...]:
        """All listeners for Kafka clients, by name."""
        return tuple(sorted(self.listeners or (of_listen(self.listen),), key=lambda one: one.name))

    @property
    def founders(self) -> tuple[NodeId, ...]:
        """The nodes that the cluster began with, ascending."""
        named = self.groups.founders
        return tuple(
            sorted(NodeId(int(node)) for node in named.split(",")) if named else self.peers
        )

    def describe(self) -> str:
        """Every setting with its meaning, as TOML that `load` reads back to an equal Config."""
        lines: list[str] = []
        for name, section_class in SECTIONS.items():
            lines.append(f"[{name}]")
            section = getattr(self, name)
            for field in attrs.fields(section_class):
                setting = f"{field.name} = {show(getattr(section, field.name))}"
                lines.append(f"{setting:<36} # {doc_of(field)}")
            lines.append("")
        lines += as_toml(self.listeners)
        lines.append("[peers]")
        lines += [f"{node} = {show(address)}" for node, address in self.peers.items()]
        return "\n".join(lines) + "\n"


# --- loading -------------------------------------------------------------------------------------


_T = TypeVar("_T")


class _Setting(NamedTuple):
    section: str
    key: str
    raw: object
    source: str
    """Where it was set, in words for the operator."""


@attrs.define
class _Loader:
    """Collects settings from all sources, and all problems, so that one run shows every one."""

    problems: list[str] = attrs.Factory(list)
    values: dict[str, dict[str, Any]] = attrs.Factory(lambda: {name: {} for name in SECTIONS})
    sources: dict[str, str] = attrs.Factory(dict)
    peers: dict[NodeId, Address] = attrs.Factory(dict)
    listeners: list[ListenerSettings] = attrs.Factory(list)

    def take(self, settings: Iterable[_Setting]) -> None:
        for setting in settings:
            try:
                self._take_one(setting)
            except ValueError as error:
                self.problems.append(f"{setting.source}: {error}")

    def _take_one(self, setting: _Setting) -> None:
        """Parse and keep one setting; a later source overrides an earlier one."""
        if setting.section == LISTENERS:
            self._take_listeners(setting)
            return
        dotted = f"{setting.section}.{setting.key}"
        if setting.section == "peers":
            if not (setting.key.isascii() and setting.key.isdigit()):
                raise ValueError(f"{dotted}: the key of a peer is its node id, a number")
            self.peers[NodeId(int(setting.key))] = _parsed(dotted, parse_address, setting.raw)
            self.sources[f"peers.{int(setting.key)}"] = setting.source
            return
        section_class = SECTIONS.get(setting.section)
        if section_class is None:
            nearest = _nearest(setting.section, [*SECTIONS, "peers"])
            raise ValueError(f"unknown section [{setting.section}]; {nearest}")
        fields = {field.name: field for field in attrs.fields(section_class)}
        if setting.key not in fields:
            nearest = _nearest(setting.key, fields, prefix=f"{setting.section}.")
            raise ValueError(f"unknown key {dotted}; {nearest}")
        parser = fields[setting.key].metadata["parse"]
        self.values[setting.section][setting.key] = _parsed(dotted, parser, setting.raw)
        self.sources[dotted] = setting.source

    def _take_listeners(self, setting: _Setting) -> None:
        if not isinstance(setting.raw, list) or not all(isinstance(x, dict) for x in setting.raw):
            raise ValueError("listeners are tables in the file, [[listeners]], one for each")
        for table in setting.raw:
            try:
                self.listeners.append(take(table, setting.source))
            except ConfigError as error:
                self.problems += error.problems

    def build(self) -> Config:
        sections: dict[str, Any] = {}
        for name, section_class in SECTIONS.items():
            missing = [
                f"{name}.{field.name} is missing: set it ({doc_of(field)})"
                for field in attrs.fields(section_class)
                if field.default is attrs.NOTHING and field.name not in self.values[name]
            ]
            self.problems += missing
            if not missing:
                try:
                    sections[name] = section_class(**self.values[name])
                except ConfigError as error:
                    self.problems += [self._with_source(problem) for problem in error.problems]
        if not self.problems:
            try:
                return Config(peers=self.peers, listeners=tuple(self.listeners), **sections)
            except ConfigError as error:
                self.problems += [self._with_source(problem) for problem in error.problems]
        raise ConfigError(self.problems)

    def _with_source(self, problem: str) -> str:
        """Add where the value was set; problems begin with the dotted key."""
        source = self.sources.get(problem.partition(" = ")[0])
        return problem if source is None else f"{source}: {problem}"


def load(path: Path | None, env: Mapping[str, str], overrides: Sequence[str] = ()) -> Config:
    """Read a Config from a file, the environment and `section.key=value` overrides, in that order.

    Raises:
        ConfigError: with all problems, one sentence each.
    """
    return load_with_origins(path, env, overrides)[0]


def load_with_origins(
    path: Path | None, env: Mapping[str, str], overrides: Sequence[str] = ()
) -> tuple[Config, dict[str, str]]:
    """The same, and for each setting that is not a default where it was set, in words.

    Raises:
        ConfigError: with all problems, one sentence each.
    """
    loader = _Loader()
    if path is not None:
        loader.take(_from_file(path, loader.problems))
    loader.take(_from_env(env, loader.problems))
    loader.take(_from_overrides(overrides, loader.problems))
    return loader.build(), dict(loader.sources)


def _parsed(dotted: str, parser: Callable[[object], _T], raw: object) -> _T:
    try:
        if isinstance(raw, str):
            raw.encode()  # bytes in the environment that are not UTF-8 could not be shown
            if len(raw) > VALUE_CHARS_MAX:
                raise ValueError(f"a value has at most {VALUE_CHARS_MAX} characters")
        return parser(raw)
    except ValueError as error:
        raise ValueError(f"{dotted} = {show(raw)}: {error}") from error


def _nearest(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """The known word that was probably meant, or all known words if none is similar."""
    choice = sorted(known)
    near = difflib.get_close_matches(word, choice, n=1, cutoff=0.6)
    if near:
        return f"did you mean {prefix}{near[0]}?"
    return "known are " + ", ".join(prefix + name for name in choice)


def _from_file(path: Path, problems: list[str]) -> Iterable[_Setting]:
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_FILE_BYTES_MAX + 1)
        if len(data) > CONFIG_FILE_BYTES_MAX:
            problems.append(f"{path}: larger than {CONFIG_FILE_BYTES_MAX} bytes: not a config file")
            return
        text = data.decode()
        if max(map(len, text.splitlines()), default=0) > CONFIG_LINE_CHARS_MAX:
            most = CONFIG_LINE_CHARS_MAX
            problems.append(f"{path}: a line of more than {most} characters: not a config file")
            return
        tables = tomllib.loads(text)
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
        return
    except (ValueError, RecursionError) as error:
        problems.append(f"{path}: not TOML: {error}")
        return
    for name, table in tables.items():
        if name == LISTENERS:
            yield _Setting(name, "", table, str(path))
            continue
        if not isinstance(table, dict):
            problems.append(f"{path}: {name} is outside of a section; put it under a [section]")
            continue
        for key, raw in table.items():
            yield _Setting(name, key, raw, str(path))


def _from_env(env: Mapping[str, str], problems: list[str]) -> Iterable[_Setting]:
    for variable, raw in sorted(env.items()):
        if not variable.startswith(ENV_PREFIX) or variable in NOT_SETTINGS:
            continue
        section, separator, key = variable.removeprefix(ENV_PREFIX).lower().partition("__")
        source = f"environment variable {variable}"
        if separator:
            yield _Setting(section, key, raw, source)
        else:
            known = [
                f"{ENV_PREFIX}{name}__{field.name}".upper()
                for name, section_class in SECTIONS.items()
                for field in attrs.fields(section_class)
            ]
            problems.append(
                f"{source}: a setting is {ENV_PREFIX}SECTION__KEY, with two underscores between; "
                + _nearest(variable, known)
            )


def _from_overrides(overrides: Sequence[str], problems: list[str]) -> Iterable[_Setting]:
    for override in overrides:
        dotted, equals, raw = override.partition("=")
        section, dot, key = dotted.strip().partition(".")
        if equals and dot:
            yield _Setting(section, key, raw.strip(), f"--set {override}")
        else:
            problems.append(f"--set {override}: expected --set section.key=value")
