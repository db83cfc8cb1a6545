"""The invented light source that the demo describes: its devices, their process variables, its people and its clock."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import product
from zoneinfo import ZoneInfo

NAME = "Lakeside Photon Source (demo)"
ZONE = ZoneInfo("America/Chicago")
#: The two years that the records cover, as local dates; the end is the first day that `advance` adds.
FIRST_DAY, END_DAY = date(2024, 10, 1), date(2026, 10, 1)
DAYS = (END_DAY - FIRST_DAY).days
SHIFTS = (("owl", 0), ("day", 8), ("swing", 16))
SHIFT_MINUTES = 8 * 60
LOG_ID_BASE = 100_000


@dataclass(frozen=True, slots=True)
class Signal:
    """A process variable that every device of a kind has: name suffix, what it says, unit, and its usual range."""

    suffix: str
    words: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices that are alike. `name` and `prefix` are format strings over sector `s`, half `h` and number `n`."""

    key: str
    noun: str
    system: str
    name: str
    prefix: str
    place: str
    sectors: tuple[int, ...]
    halves: str
    numbers: int
    signals: tuple[Signal, ...]

    @property
    def measured(self) -> tuple[Signal, ...]:
        """Signals that have a unit; all of them where none has."""
        return tuple(signal for signal in self.signals if signal.unit) or self.signals


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    kind: Kind
    sector: int
    prefix: str
    place: str

    def pv(self, suffix: str) -> str:
        return f"{self.prefix}:{suffix}"

    @property
    def label(self) -> str:
        """How prose names it without its identifier."""
        return f"{self.kind.noun} in {self.place}"


@dataclass(frozen=True, slots=True)
class Person:
    first: str
    last: str
    role: str
    system: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"

    @property
    def username(self) -> str:
        return (self.last + self.first[0]).lower()


@dataclass(frozen=True, slots=True)
class Shift:
    """One of the three shifts of a day; `index` counts from the first one of the two years."""

    index: int

    @property
    def day(self) -> date:
        return FIRST_DAY + timedelta(days=self.index // 3)

    @property
    def name(self) -> str:
        return SHIFTS[self.index % 3][0]

    @property
    def number(self) -> int:
        return self.index % 3 + 1

    @property
    def first_minute(self) -> int:
        return self.index * SHIFT_MINUTES


def at(minute: int) -> datetime:
    """The aware local time of a minute counted on the wall clock from the start of the two years."""
    naive = datetime.combine(FIRST_DAY, datetime.min.time()) + timedelta(minutes=minute)
    return naive.replace(tzinfo=ZONE)


def utc_text(minute: int, second: int = 0) -> str:
    """UTC in the form of the log book's REST interface."""
    moment = at(minute).astimezone(UTC) + timedelta(seconds=second)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000+00:00")


def _signals(*rows: tuple[str, str, str, float, float]) -> tuple[Signal, ...]:
    return tuple(Signal(*row) for row in rows)


_MAGNET = _signals(
    ("CurrentAI", "output current", "A", 40, 180),
    ("CurrentAO", "current setpoint", "A", 40, 180),
    ("OutVoltageAI", "output voltage", "V", 8, 40),
    ("HeatsinkTempAI", "heatsink temperature", "degC", 30, 41),
    ("MagTempAI", "magnet coil temperature", "degC", 27, 36),
    ("DacAI", "DAC readback", "V", 1, 9),
)
_CORRECTOR = _signals(
    ("CurrentAI", "output current", "A", -90, 90),
    ("CurrentAO", "current setpoint", "A", -90, 90),
    ("CapTempAI", "capacitor bank temperature", "degC", 29, 40),
    ("ControlSrcBO", "control source select", "", 0, 1),
)
_BPM = _signals(
    ("ms:x", "horizontal beam position", "mm", -0.4, 0.4),
    ("ms:y", "vertical beam position", "mm", -0.2, 0.2),
    ("ms:x:SetpointAO", "horizontal orbit setpoint", "mm", -0.4, 0.4),
    ("ms:y:SetpointAO", "vertical orbit setpoint", "mm", -0.2, 0.2),
    ("SumAI", "button sum signal", "V", 1.2, 2.6),
    ("msw:x:ErrorCC", "horizontal orbit error", "um", -20, 20),
)
_PUMP = _signals(
    ("CurrentM", "ion pump current", "uA", 4, 60),
    ("VoltageM", "ion pump voltage", "kV", 4.9, 5.4),
    ("PressureM", "pressure from pump current", "nTorr", 0.2, 1.5),
)
_KLYSTRON = _signals(
    ("CathodeVoltageM", "cathode voltage", "kV", 68, 88),
    ("BeamCurrentM", "beam current", "A", 9, 13),
    ("ForwardPowerM", "forward power", "kW", 420, 690),
    ("CollectorFlowM", "collector water flow", "gpm", 290, 330),
    ("FilamentCurrentM", "filament current", "A", 21, 24),
    ("VacIonCurrentM", "gun vacion current", "uA", 0.1, 0.9),
    ("OutputArcBI", "output arc detector", "", 0, 0),
)
_CAVITY = _signals(
    ("GapVoltageM", "gap voltage", "kV", 480, 620),
    ("TunerPosM", "tuner position", "mm", 12, 31),
    ("WindowTempM", "coupler window temperature", "degC", 29, 40),
    ("VacuumM", "cavity pressure", "nTorr", 0.5, 4),
    ("ReflPowerM", "reflected power", "kW", 1, 6),
)
_MODULATOR = _signals(
    ("HVPSVoltageM", "charging voltage", "kV", 31, 38),
    ("ThyratronHrsCC", "thyratron hours", "h", 2000, 15000),
    ("PulseCurrentM", "pulse current", "A", 240, 280),
    ("ReservoirM", "thyratron reservoir voltage", "V", 4.2, 5.1),
    ("PhaseM", "drive phase", "deg", -180, 180),
)
_KICKER = _signals(
    ("VoltageM", "charging voltage", "kV", 9, 16),
    ("TrigDelayAO", "trigger delay", "ns", 310, 640),
    ("TankTempM", "tank temperature", "degC", 24, 33),
    ("MisfireCountCC", "misfire count", "", 0, 4),
)
_UNDULATOR = _signals(
    ("GapM", "gap readback", "mm", 10.5, 60),
    ("GapAO", "gap setpoint", "mm", 10.5, 60),
    ("TaperM", "taper", "mm", -0.3, 0.3),
    ("MotorCurrentM", "drive motor current", "A", 1.2, 3.4),
    ("EncoderDiffM", "upstream to downstream encoder difference", "um", -8, 8),
)
_COMPRESSOR = _signals(
    ("DischargePressM", "discharge pressure", "psi", 255, 285),
    ("OilTempM", "oil temperature", "degC", 33, 44),
    ("HeLevelM", "helium level", "%", 74, 92),
    ("ColdheadTempM", "second stage temperature", "K", 3.7, 4.3),
)
_WATER = _signals(
    ("FlowM", "supply flow", "gpm", 610, 790),
    ("SupplyTempM", "supply temperature", "degF", 77, 79),
    ("DiffPressM", "differential pressure", "psi", 61, 74),
    ("ConductivityM", "conductivity", "uS/cm", 0.08, 0.2),
    ("VibrationM", "bearing vibration", "mm/s", 0.6, 2.4),
)
_GAUGE = _signals(("PressureM", "cold cathode pressure", "nTorr", 0.2, 1.4), ("StatusBI", "gauge status", "", 1, 1))
_VALVE = _signals(
    ("OpenBI", "open limit switch", "", 1, 1),
    ("AirPressM", "air supply pressure", "psi", 78, 92),
    ("CmdBO", "open command", "", 0, 1),
)
_COMPUTER = _signals(
    ("CpuLoadAI", "processor load", "%", 8, 45),
    ("FreeMemAI", "free memory", "MB", 30, 210),
    ("CAConnCnt", "channel access connections", "", 12, 140),
    ("HeartbeatCC", "heartbeat counter", "", 0, 60000),
)
_INTERLOCK = _signals(
    ("ChainABI", "chain A status", "", 1, 1),
    ("ChainBBI", "chain B status", "", 1, 1),
    ("DoorBI", "door switch", "", 1, 1),
)
_THERMO = _signals(("TempVal", "temperature", "degC", 24, 34), ("AlarmBI", "over-temperature alarm", "", 0, 0))

_RING = tuple(range(1, 41))
_USERS = tuple(range(1, 36))
_K = Kind
KINDS: tuple[Kind, ...] = (
    _K("quad", "quadrupole power supply", "Magnet Power Supplies", "S{s}{h}:Q{n}", "S{s}{h}:Q{n}", "sector {s}", _RING,
       "AB", 6, _MAGNET),
    _K("sext", "sextupole power supply", "Magnet Power Supplies", "S{s}{h}:S{n}", "S{s}{h}:S{n}", "sector {s}", _RING,
       "AB", 3, _MAGNET),
    _K("corr", "corrector power supply", "Magnet Power Supplies", "S{s}{h}:H{n}", "S{s}{h}:H{n}", "sector {s}", _RING,
       "AB", 4, _CORRECTOR),
    _K("bpm", "beam position monitor", "Diagnostics", "S{s}{h}:P{n}", "S{s}{h}:P{n}", "sector {s}", _RING, "AB", 5,
       _BPM),
    _K("pump", "ion pump", "Vacuum", "S{s}:IP{n}", "VM:{s:02d}:IP{n}", "sector {s}", _RING, "-", 8, _PUMP),
    _K("gauge", "cold cathode gauge", "Vacuum", "S{s}:CC{n}", "VM:{s:02d}:CC{n}", "sector {s}", _RING, "-", 3, _GAUGE),
    _K("valve", "gate valve", "Vacuum", "S{s}:GV{n}", "VM:{s:02d}:GV{n}", "sector {s}", _RING, "-", 2, _VALVE),
    _K("klystron", "klystron", "RF", "RF{s}:KLY{n}", "SRF:RF{s}:KLY{n}", "RF station {s}", (1, 2, 3, 4), "-", 2,
       _KLYSTRON),
    _K("cavity", "rf cavity", "RF", "S{s}:CAV{n}", "SRF:S{s}:CAV{n}", "sector {s}", (36, 37, 38, 40), "-", 4, _CAVITY),
    _K("modulator", "linac modulator", "Linac", "L{s}:MOD{n}", "L{s}:MOD{n}", "linac station {s}", (1, 2, 3, 4, 5, 6),
       "-", 2, _MODULATOR),
    _K("kicker", "injection kicker", "Injection", "S{s}:IK{n}", "S{s}:IK{n}", "sector {s}", (1, 38, 39, 40), "-", 4,
       _KICKER),
    _K("undulator", "insertion device", "Insertion Devices", "ID{s:02d}{h}", "ID{s:02d}{h}", "sector {s}", _USERS,
       "ud", 1, _UNDULATOR),
    _K("compressor", "helium compressor", "Cryogenics", "CRYO{s}:CP{n}", "CRYO:{s:02d}:CP{n}", "cryo building {s}",
       (1, 2, 3), "-", 4, _COMPRESSOR),
    _K("water", "process water pump", "Water", "WS{s}:PUMP{n}", "G:WS{s}:PUMP{n}", "pump house {s}", (1, 2, 3, 4, 5, 6),
       "-", 4, _WATER),
    _K("ioc", "IOC", "Controls", "iocs{s:02d}{h}mag", "NET:iocs{s:02d}{h}mag", "sector {s}", _RING, "ab", 1, _COMPUTER),
    _K("door", "personnel safety interlock", "Interlocks", "PSS{s}:DOOR{n}", "PSS:{s:02d}:DOOR{n}", "sector {s}",
       _USERS, "-", 2, _INTERLOCK),
    _K("thermo", "chamber thermocouple", "Diagnostics", "S{s}:TC{n:02d}", "SR:S{s:02d}:TC{n:02d}", "sector {s}", _RING,
       "-", 40, _THERMO),
)  # fmt: skip
KIND_BY_KEY = {kind.key: kind for kind in KINDS}
SYSTEMS: tuple[str, ...] = tuple(dict.fromkeys(kind.system for kind in KINDS))
#: Chat channel of each system; several share one, as teams do.
CHANNELS = {
    "Magnet Power Supplies": "magnets",
    "Diagnostics": "diagnostics",
    "Vacuum": "vacuum",
    "RF": "rf",
    "Linac": "injector",
    "Injection": "injector",
    "Insertion Devices": "id-devices",
    "Cryogenics": "cryo-water",
    "Water": "cryo-water",
    "Controls": "controls",
    "Interlocks": "interlocks",
}

_FIRST = [
    "Aaron",
    "Beth",
    "Carlos",
    "Dana",
    "Elif",
    "Frank",
    "Grace",
    "Hiro",
    "Irene",
    "Jonas",
    "Kavya",
    "Liam",
    "Marta",
    "Nils",
    "Olga",
    "Pedro",
    "Quinn",
    "Rosa",
    "Stefan",
    "Tara",
    "Umar",
    "Vera",
    "Wendel",
    "Xenia",
    "Yusuf",
    "Zofia",
    "Anders",
    "Bianca",
    "Cyrus",
    "Dorota",
]
_LAST = [
    "Abbott",
    "Brandt",
    "Castillo",
    "Dvorak",
    "Eklund",
    "Ferris",
    "Gupta",
    "Halvorsen",
    "Ibarra",
    "Jansen",
    "Kowalski",
    "Lindqvist",
    "Moreau",
    "Nakano",
    "Okafor",
    "Petrov",
    "Quigley",
    "Rasmussen",
    "Sandoval",
    "Tanaka",
    "Ullman",
    "Vasquez",
    "Whitlock",
    "Yilmaz",
    "Zeller",
    "Ashworth",
    "Bergstrom",
    "Cordero",
    "Dunne",
    "Estrada",
    "Fairbanks",
    "Grimaldi",
    "Hashimoto",
    "Ingram",
    "Juarez",
    "Keller",
    "Lombardi",
    "Mbeki",
    "Novak",
    "Ostrowski",
]


class Facility:
    """Everything that exists at the demo facility. Two of the same seed are equal."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def rng(self, *purpose: object) -> random.Random:
        """A generator of its own for each purpose, so that no part's choices depend on how often another drew."""
        return random.Random("/".join(str(part) for part in (self.seed, *purpose)))

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for kind in KINDS for device in _devices(kind))

    @cached_property
    def by_kind(self) -> dict[str, tuple[Device, ...]]:
        found: dict[str, list[Device]] = {kind.key: [] for kind in KINDS}
        for device in self.devices:
            found[device.kind.key].append(device)
        return {key: tuple(devices) for key, devices in found.items()}

    @cached_property
    def people(self) -> tuple[Person, ...]:
        rng = self.rng("people")
        last = list(_LAST)
        rng.shuffle(last)
        roles = [("operator", ""), ("operator", ""), ("crew chief", "")]
        roles += [(role, system) for system in SYSTEMS for role in ("engineer", "technician", "physicist")]
        return tuple(Person(rng.choice(_FIRST), name, *roles[index % len(roles)]) for index, name in enumerate(last))

    @cached_property
    def operators(self) -> tuple[Person, ...]:
        return tuple(person for person in self.people if not person.system)

    @cached_property
    def _experts(self) -> dict[str, tuple[Person, ...]]:
        return {system: tuple(p for p in self.people if p.system == system) for system in SYSTEMS}

    def experts(self, system: str) -> tuple[Person, ...]:
        return self._experts[system]

    def siblings(self, device: Device) -> Iterator[Device]:
        """Devices of the same kind elsewhere: what a careless search takes for it."""
        return (other for other in self.by_kind[device.kind.key] if other.name != device.name)


def _devices(kind: Kind) -> Iterator[Device]:
    for sector, half, number in product(kind.sectors, kind.halves, range(1, kind.numbers + 1)):
        slots = {"s": sector, "h": half, "n": number}
        yield Device(kind.name.format(**slots), kind, sector, kind.prefix.format(**slots), kind.place.format(**slots))
