//! Every name that is part of the API but not a field: groups, labels, annotations, finalizers, condition types and
//! reasons. What is spelled here is spelled nowhere else.

/// API groups and their versions.
pub mod groups {
    /// The group of machines, guests and moves.
    pub const KUBEVIRT: &str = "kubevirt.io";
    /// The group of migration policies.
    pub const MIGRATIONS: &str = "migrations.kubevirt.io";
    /// The aggregated group for console, VNC, start, stop and the like.
    pub const SUBRESOURCES: &str = "subresources.kubevirt.io";
}

/// Labels on objects, pods and nodes.
pub mod labels {
    /// Marks what belongs to the system; on pods its value names the component.
    pub const APP: &str = "kubevirt.io";
    /// Marks what is needed before anything else is installed.
    pub const OPERATOR: &str = "operator.kubevirt.io";
    /// Who manages an installed object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Product name on installed objects.
    pub const APP_NAME: &str = "app.kubernetes.io/name";
    /// Product version on installed objects.
    pub const APP_VERSION: &str = "app.kubernetes.io/version";
    /// Product family on installed objects.
    pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
    /// Component on installed objects.
    pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
    /// UID of the guest that a pod was made for.
    pub const CREATED_BY: &str = "kubevirt.io/created-by";
    /// Name of the virtual machine, by convention in templates.
    pub const VM: &str = "kubevirt.io/vm";
    /// Deprecated: name of the virtual machine.
    pub const VM_NAME: &str = "vm.kubevirt.io/name";
    /// The guest that a launcher pod belongs to, shortened to a label value.
    pub const VMI_ID: &str = "vmi.kubevirt.io/id";
    /// The node that owns a guest.
    pub const NODE_NAME: &str = "kubevirt.io/nodeName";
    /// The node that a guest moves to.
    pub const MIGRATION_TARGET_NODE_NAME: &str = "kubevirt.io/migrationTargetNodeName";
    /// On a guest: the node whose virt-handler has to say whether anything of the guest's vanished pods runs there still.
    pub const ASKED_NODE: &str = "ferrovirt.io/asked-node";
    /// UID of the migration that a target pod was made for.
    pub const MIGRATION_JOB: &str = "kubevirt.io/migrationJobUID";
    /// Name of the migration that an object was made for.
    pub const MIGRATION_NAME: &str = "kubevirt.io/migrationName";
    /// On a migration: the guest.
    pub const MIGRATION_SELECTOR: &str = "kubevirt.io/vmi-name";
    /// On a guest whose launcher image is not the current one.
    pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";
    /// CPU limit that the launcher pod gets at the next move.
    pub const POD_CPU_LIMITS: &str = "kubevirt.io/vmi-pod-cpu-resource-limits";
    /// Memory request that the launcher pod gets at the next move.
    pub const POD_MEMORY_REQUESTS: &str = "kubevirt.io/vmi-pod-memory-resource-requests";
    /// Factor on the memory overhead, fixed at start.
    pub const MEMORY_HOTPLUG_OVERHEAD_RATIO: &str = "kubevirt.io/memory-hotplug-overhead-ratio";
    /// On a namespace: memory limit as a multiple of the request.
    pub const AUTO_MEMORY_LIMITS_RATIO: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";
    /// Marks stored install strategies.
    pub const INSTALL_STRATEGY: &str = "kubevirt.io/install-strategy";
    /// On a node that can take guests.
    pub const NODE_SCHEDULABLE: &str = "kubevirt.io/schedulable";
    /// On a node that can dedicate CPUs.
    pub const CPU_MANAGER: &str = "kubevirt.io/cpumanager";
    /// Older name of the same.
    pub const CPU_MANAGER_OLD: &str = "cpumanager";
    /// On a node: CPU features.
    pub const CPU_FEATURE_PREFIX: &str = "cpu-feature.node.kubevirt.io/";
    /// On a node: CPU models.
    pub const CPU_MODEL_PREFIX: &str = "cpu-model.node.kubevirt.io/";
    /// On a node: host models that it can take in a move.
    pub const CPU_MODEL_MIGRATION_PREFIX: &str = "cpu-model-migration.node.kubevirt.io/";
    /// On a node: timers.
    pub const CPU_TIMER_PREFIX: &str = "cpu-timer.node.kubevirt.io/";
    /// On a node: CPU vendor.
    pub const CPU_VENDOR_PREFIX: &str = "cpu-vendor.node.kubevirt.io/";
    /// On a node: Hyper-V features.
    pub const HYPERV_PREFIX: &str = "hyperv.node.kubevirt.io/";
    /// On a node: machine types.
    pub const MACHINE_TYPE_PREFIX: &str = "machine-type.node.kubevirt.io/";
    /// On a node: its own CPU model.
    pub const HOST_MODEL_CPU_PREFIX: &str = "host-model-cpu.node.kubevirt.io/";
    /// On a node: features that its own CPU model needs.
    pub const HOST_MODEL_REQUIRED_FEATURES_PREFIX: &str = "host-model-required-features.node.kubevirt.io/";
    /// On a node whose own CPU model is not offered.
    pub const OBSOLETE_HOST_MODEL: &str = "node-labeller.kubevirt.io/obsolete-host-model";
    /// On a node that can run real-time guests.
    pub const REALTIME: &str = "kubevirt.io/realtime";
    /// On a node with AMD SEV.
    pub const SEV: &str = "kubevirt.io/sev";
    /// On a node with AMD SEV-ES.
    pub const SEV_ES: &str = "kubevirt.io/sev-es";
    /// On a node with AMD SEV-SNP.
    pub const SEV_SNP: &str = "kubevirt.io/sev-snp";
    /// On a node with Intel TDX.
    pub const TDX: &str = "kubevirt.io/tdx";
    /// On a node with IBM Secure Execution.
    pub const SECURE_EXECUTION: &str = "kubevirt.io/s390-pv";
    /// On a node: architectures of guests that it can run.
    pub const VM_ARCH_PREFIX: &str = "kubevirt.io/vm-arch-";
    /// On a node that shares equal memory pages.
    pub const KSM_ENABLED: &str = "kubevirt.io/ksm-enabled";
    /// On a launcher pod: volumes with SCSI reservations.
    pub const PERSISTENT_RESERVATION_PREFIX: &str = "pr.kubevirt.io/";
    /// On pods that network policies let reach cluster services.
    pub const ALLOW_ACCESS_CLUSTER_SERVICES: &str = "np.kubevirt.io/allow-access-cluster-services";
    /// On a guest: the launcher logs everything.
    pub const DEBUG_LOGS: &str = "debugLogs";
    /// On a guest: how much the launcher logs.
    pub const LOG_VERBOSITY: &str = "logVerbosity";
    /// On a guest: virtiofsd logs everything.
    pub const VIRTIOFSD_DEBUG_LOGS: &str = "virtiofsdDebugLogs";
}

/// Annotations on objects, pods and nodes.
pub mod annotations {
    /// On a launcher pod: name of the guest.
    pub const DOMAIN: &str = "kubevirt.io/domain";
    /// On a target pod: name of the migration.
    pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
    /// On an attachment pod: name of the guest.
    pub const OWNER_VMI_NAME: &str = "kubevirt.io/owner-vmi-name";
    /// On an attachment pod: UID of the guest.
    pub const OWNER_VMI_UID: &str = "kubevirt.io/owner-vmi-uid";
    /// On a guest: generation of the virtual machine that made it.
    pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";
    /// On a guest that was made because somebody asked for a start: that request is served.
    pub const START_REQUEST: &str = "ferrovirt.io/start-request";
    /// On a guest: uids of vanished pods, separated by commas, of which somebody says that nothing runs any more.
    pub const VOUCHED_PODS: &str = "ferrovirt.io/vouched-pods";
    /// Newest API version that a controller has seen.
    pub const API_LATEST_OBSERVED: &str = "kubevirt.io/latest-observed-api-version";
    /// Stored API version that a controller has seen.
    pub const API_STORAGE_OBSERVED: &str = "kubevirt.io/storage-observed-api-version";
    /// On a migration: the node that is being drained.
    pub const EVACUATION_MIGRATION: &str = "kubevirt.io/evacuationMigration";
    /// On a migration that brings a guest up to date.
    pub const WORKLOAD_UPDATE_MIGRATION: &str = "kubevirt.io/workloadUpdateMigration";
    /// On a migration that moves volumes.
    pub const VOLUMES_UPDATE_MIGRATION: &str = "kubevirt.io/volume-update-migration";
    /// On a guest that is awaited from another cluster.
    pub const CREATE_MIGRATION_TARGET: &str = "kubevirt.io/create-migration-target";
    /// On a virtual machine: the run strategy after a guest was received.
    pub const RESTORE_RUN_STRATEGY: &str = "kubevirt.io/restore-run-strategy";
    /// On a target pod: when the guest ran there.
    pub const MIGRATION_TARGET_READY_TIMESTAMP: &str = "kubevirt.io/migration-target-ready-timestamp";
    /// On a launcher pod that moves guests through Unix sockets.
    pub const MIGRATION_TRANSPORT_UNIX: &str = "kubevirt.io/migrationTransportUnix";
    /// On a migration: how long the target pod may find no node.
    pub const MIGRATION_UNSCHEDULABLE_TIMEOUT: &str = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds";
    /// On a migration: how long the target pod may be pending.
    pub const MIGRATION_PENDING_TIMEOUT: &str = "kubevirt.io/migrationPendingPodTimeoutSeconds";
    /// On a migration: how long to wait for utility volumes.
    pub const MIGRATION_UTILITY_VOLUMES_TIMEOUT: &str = "kubevirt.io/migrationUtilityVolumesTimeoutSeconds";
    /// On a guest: who asked it to leave.
    pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";
    /// On a node: when its agent last spoke.
    pub const NODE_HEARTBEAT: &str = "kubevirt.io/heartbeat";
    /// On a node that gets no labels.
    pub const LABELLER_SKIP_NODE: &str = "node-labeller.kubevirt.io/skip-node";
    /// On a guest: Ignition configuration.
    pub const IGNITION_DATA: &str = "kubevirt.io/ignitiondata";
    /// On a guest: hook containers, as JSON.
    pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
    /// On a guest: PCI devices sit on the root complex.
    pub const PLACE_PCI_ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
    /// On a guest: how PCI slots are laid out.
    pub const PCI_TOPOLOGY_VERSION: &str = "kubevirt.io/pci-topology-version";
    /// On a guest: PCI slots for network cards.
    pub const PCI_INTERFACE_SLOT_COUNT: &str = "kubevirt.io/pci-interface-slot-count";
    /// Deprecated: on a guest without a 64-bit PCI window.
    pub const DISABLE_PCI_HOLE64: &str = "kubevirt.io/disablePCIHole64";
    /// On a guest: EFI with a VGA display.
    pub const VGA_DISPLAY_EFI_X86: &str = "kubevirt.io/vga-display-efi-x86";
    /// On a guest: `false` backs its memory by files.
    pub const MEMFD: &str = "kubevirt.io/memfd";
    /// On a guest that does not give free pages back.
    pub const FREE_PAGE_REPORTING_DISABLED: &str = "kubevirt.io/free-page-reporting-disabled";
    /// On a guest: the launcher stays after a failure, for debugging.
    pub const KEEP_LAUNCHER_AFTER_FAILURE: &str = "kubevirt.io/keep-launcher-alive-after-failure";
    /// On a guest: libvirt log filters.
    pub const LIBVIRT_LOG_FILTERS: &str = "kubevirt.io/libvirt-log-filters";
    /// On a guest that may move although it is bridged to the pod network.
    pub const ALLOW_POD_BRIDGE_MIGRATION: &str = "kubevirt.io/allow-pod-bridge-network-live-migration";
    /// On a guest whose agent is left alone.
    pub const PAUSE_GUEST_AGENT_PROBES: &str = "kubevirt.io/pause-guest-agent-probes";
    /// On the configuration: emulator CPUs are rounded up to an even number.
    pub const EMULATOR_THREAD_EVEN_PARITY: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";
    /// On a virtual machine: `false` makes data volumes at start only.
    pub const IMMEDIATE_DATA_VOLUME_CREATION: &str = "kubevirt.io/immediate-data-volume-creation";
    /// On a pod that only makes volumes bind.
    pub const EPHEMERAL_PROVISIONING: &str = "kubevirt.io/ephemeral-provisioning";
    /// On a copy that lasts for an update.
    pub const EPHEMERAL_BACKUP_OBJECT: &str = "kubevirt.io/ephemeral-backup-object";
    /// On a launcher pod: memory overhead.
    pub const MEMORY_OVERHEAD_BYTES: &str = "kubevirt.io/memory-overhead-bytes";
    /// On a claim: name of the memory dump in it.
    pub const MEMORY_DUMP: &str = "kubevirt.io/memory-dump";
    /// On a guest whose image volumes are not pinned to a digest.
    pub const IMAGE_VOLUME_SKIP_DIGEST: &str = "kubevirt.io/image-volume-skip-digest-resolution";
    /// On a guest: socket of the quote generation service.
    pub const QGS_SOCKET_PATH: &str = "kubevirt.io/qgs-socket-path";
    /// On a guest: its instance type.
    pub const INSTANCETYPE: &str = "kubevirt.io/instancetype-name";
    /// On a guest: its cluster-wide instance type.
    pub const CLUSTER_INSTANCETYPE: &str = "kubevirt.io/cluster-instancetype-name";
    /// On a guest: its preference.
    pub const PREFERENCE: &str = "kubevirt.io/preference-name";
    /// On a guest: its cluster-wide preference.
    pub const CLUSTER_PREFERENCE: &str = "kubevirt.io/cluster-preference-name";
    /// On a virtual machine: revision of its pool.
    pub const POOL_REVISION: &str = "kubevirt.io/vm-pool-revision-name";
    /// On installed objects: version.
    pub const INSTALL_STRATEGY_VERSION: &str = "kubevirt.io/install-strategy-version";
    /// On installed objects: registry.
    pub const INSTALL_STRATEGY_REGISTRY: &str = "kubevirt.io/install-strategy-registry";
    /// On installed objects: hash of the configuration.
    pub const INSTALL_STRATEGY_IDENTIFIER: &str = "kubevirt.io/install-strategy-identifier";
    /// On installed objects: hash of the patches.
    pub const CUSTOMIZER_IDENTIFIER: &str = "kubevirt.io/customizer-identifier";
    /// On installed objects: generation of the configuration.
    pub const INSTALLED_GENERATION: &str = "kubevirt.io/generation";
    /// Deprecated: on a guest whose launcher is not root.
    pub const NONROOT: &str = "kubevirt.io/nonroot";
    /// On a node whose page sharing the agent controls.
    pub const KSM_HANDLER_MANAGED: &str = "kubevirt.io/ksm-handler-managed";
    /// On a node: page sharing, step up.
    pub const KSM_PAGES_BOOST: &str = "kubevirt.io/ksm-pages-boost-override";
    /// On a node: page sharing, step down.
    pub const KSM_PAGES_DECAY: &str = "kubevirt.io/ksm-pages-decay-override";
    /// On a node: page sharing, fewest pages.
    pub const KSM_PAGES_MIN: &str = "kubevirt.io/ksm-pages-min-override";
    /// On a node: page sharing, most pages.
    pub const KSM_PAGES_MAX: &str = "kubevirt.io/ksm-pages-max-override";
    /// On a node: page sharing, pages at first.
    pub const KSM_PAGES_INIT: &str = "kubevirt.io/ksm-pages-init-override";
    /// On a node: page sharing, pause.
    pub const KSM_SLEEP_MS: &str = "kubevirt.io/ksm-sleep-ms-baseline-override";
    /// On a node: page sharing, free memory that starts it.
    pub const KSM_FREE_PERCENT: &str = "kubevirt.io/ksm-free-percent-override";
    /// On a launcher pod: an eviction is a request.
    pub const DESCHEDULER_REQUEST_EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
    /// On a launcher pod: the request is being served.
    pub const DESCHEDULER_EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
    /// On a data volume that may take over an existing claim.
    pub const CDI_ALLOW_CLAIM_ADOPTION: &str = "cdi.kubevirt.io/allowClaimAdoption";
}

/// Finalizers, each held by one controller.
pub mod finalizers {
    /// Holds a guest until its pods are gone.
    pub const VMI: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
    /// Older name of the same.
    pub const VMI_OLD: &str = "foregroundDeleteVirtualMachine";
    /// Holds a virtual machine and its guest until the controller has seen the end.
    pub const VM_CONTROLLER: &str = "kubevirt.io/virtualMachineControllerFinalize";
    /// Holds a migration until its target is cleaned up.
    pub const MIGRATION: &str = "kubevirt.io/migrationJobFinalize";
    /// Holds the configuration until everything is removed.
    pub const KUBEVIRT: &str = "kubevirt.io/foregroundDeleteKubeVirt";
    /// Older name of the same.
    pub const KUBEVIRT_OLD: &str = "foregroundDeleteKubeVirt";
    /// Holds a CRD until its objects are gone.
    pub const CRD: &str = "kubevirt.io/virtOperatorFinalizer";
}

/// Condition types.
pub mod conditions {
    /// Machine, guest: serves.
    pub const READY: &str = "Ready";
    /// Machine: reconciling fails.
    pub const FAILURE: &str = "Failure";
    /// Machine, guest: does not run although it is up.
    pub const PAUSED: &str = "Paused";
    /// Machine: a change waits for the next start.
    pub const RESTART_REQUIRED: &str = "RestartRequired";
    /// Machine: a move of volumes broke.
    pub const MANUAL_RECOVERY_REQUIRED: &str = "ManualRecoveryRequired";
    /// Guest: false while something fails. Installation: false while something fails.
    pub const SYNCHRONIZED: &str = "Synchronized";
    /// Guest: its volumes are being made.
    pub const PROVISIONING: &str = "Provisioning";
    /// Guest: false while no node takes its pod.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// Guest: its agent answers.
    pub const AGENT_CONNECTED: &str = "AgentConnected";
    /// Guest: its agent is too old.
    pub const AGENT_VERSION_NOT_SUPPORTED: &str = "AgentVersionNotSupported";
    /// Guest: keys and passwords are in place.
    pub const ACCESS_CREDENTIALS_SYNCHRONIZED: &str = "AccessCredentialsSynchronized";
    /// Guest: a pod of it vanished, and nobody can say whether something of it runs.
    pub const POD_UNACCOUNTED: &str = "PodUnaccounted";
    /// Guest: can move.
    pub const LIVE_MIGRATABLE: &str = "LiveMigratable";
    /// Guest: its volumes can move.
    pub const STORAGE_LIVE_MIGRATABLE: &str = "StorageLiveMigratable";
    /// Guest: CPUs wait to be plugged.
    pub const HOT_VCPU_CHANGE: &str = "HotVCPUChange";
    /// Guest: memory waits to be plugged.
    pub const HOT_MEMORY_CHANGE: &str = "HotMemoryChange";
    /// Guest: volumes are being replaced.
    pub const VOLUMES_CHANGE: &str = "VolumesChange";
    /// Guest: its data volumes are filled.
    pub const DATA_VOLUMES_READY: &str = "DataVolumesReady";
    /// Guest: a move between clusters failed.
    pub const DECENTRALIZED_MIGRATION_FAILURE: &str = "DecentralizedLiveMigrationFailure";
    /// Guest: a change needs a move.
    pub const MIGRATION_REQUIRED: &str = "MigrationRequired";
    /// Guest: has been asked to leave.
    pub const EVICTION_REQUESTED: &str = "EvictionRequested";
    /// Guest: runs without hardware virtualisation.
    pub const SOFTWARE_EMULATION: &str = "SoftwareEmulation";
    /// Move: someone asked to stop it.
    pub const MIGRATION_ABORT_REQUESTED: &str = "migrationAbortRequested";
    /// Move: a quota leaves no room for the target.
    pub const MIGRATION_REJECTED_BY_QUOTA: &str = "migrationRejectedByResourceQuota";
    /// Move: utility volumes are in use.
    pub const MIGRATION_BLOCKED_BY_UTILITY_VOLUMES: &str = "migrationBlockedByUtilityVolumes";
    /// Move: a backup runs.
    pub const MIGRATION_BLOCKED_BY_BACKUP: &str = "migrationBlockedByBackup";
    /// Move: the other cluster is not ready.
    pub const DECENTRALIZED_MIGRATION_BLOCKED: &str = "decentralizedMigrationBlocked";
    /// Installation: everything is there.
    pub const CREATED: &str = "Created";
    /// Installation: everything works.
    pub const AVAILABLE: &str = "Available";
    /// Installation: on its way.
    pub const PROGRESSING: &str = "Progressing";
    /// Installation: something is broken.
    pub const DEGRADED: &str = "Degraded";
    /// Launcher pod, readiness gate: the guest is not paused.
    pub const POD_UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";
}

/// Reasons of conditions.
pub mod reasons {
    /// Ready: there is no guest.
    pub const VMI_NOT_EXISTS: &str = "VMINotExists";
    /// Ready: the guest does not say.
    pub const VMI_CONDITION_MISSING: &str = "VMIConditionMissing";
    /// Ready: there is no launcher pod.
    pub const POD_NOT_EXISTS: &str = "PodNotExists";
    /// Ready: the launcher pod is on its way out.
    pub const POD_TERMINATING: &str = "PodTerminating";
    /// Ready: the launcher pod does not say.
    pub const POD_CONDITION_MISSING: &str = "PodConditionMissing";
    /// Ready: the guest does not run.
    pub const GUEST_NOT_RUNNING: &str = "GuestNotRunning";
    /// Something could not be created.
    pub const FAILED_CREATE: &str = "FailedCreate";
    /// Something could not be deleted.
    pub const FAILED_DELETE: &str = "FailedDelete";
    /// The guest could not be given to its node.
    pub const FAILED_HAND_OVER: &str = "FailedHandOver";
    /// The claim for firmware and TPM state could not be made.
    pub const FAILED_BACKEND_STORAGE_CREATE: &str = "FailedBackendStorageCreate";
    /// The claim for firmware and TPM state could not be looked up.
    pub const FAILED_BACKEND_STORAGE_PROBE: &str = "FailedBackendStorageProbe";
    /// The claim for firmware and TPM state is not bound.
    pub const BACKEND_STORAGE_NOT_READY: &str = "BackendStorageNotReady";
    /// A claim is missing.
    pub const FAILED_PVC_NOT_FOUND: &str = "FailedPvcNotFound";
    /// An image cannot be pulled.
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    /// An image cannot be pulled; the next try waits.
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// CPUs cannot be dedicated to the pod.
    pub const FAILED_GUARANTEE_RESOURCES: &str = "FailedGuaranteeResources";
    /// The cluster's clock frequency is not known (the spelling is the API's).
    pub const FAILED_TOPOLOGY_HINTS: &str = "FailedGatherhingClusterTopologyHints";
    /// The launcher pod could not be changed.
    pub const FAILED_POD_PATCH: &str = "FailedPodPatch";
    /// A volume could not be plugged.
    pub const FAILED_HOTPLUG_SYNC: &str = "FailedHotplugSync";
    /// A claim to plug is not bound.
    pub const PVC_NOT_READY: &str = "PVCNotReady";
    /// There is no pod that attaches a volume.
    pub const MISSING_ATTACHMENT_POD: &str = "MissingAttachmentPod";
    /// Container path volumes are turned off.
    pub const CONTAINER_PATH_VOLUMES_DISABLED: &str = "ContainerPathVolumesDisabled";
    /// The launcher pod lacks a container for virtiofs.
    pub const MISSING_VIRTIOFS_CONTAINERS: &str = "MissingVirtiofsContainers";
    /// The guest does not pass validation.
    pub const FAILED_CREATE_VALIDATION: &str = "FailedCreateValidation";
    /// No node takes the pod.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// Someone paused the guest.
    pub const PAUSED_BY_USER: &str = "PausedByUser";
    /// A move paused the guest.
    pub const PAUSED_BY_MIGRATION_MONITOR: &str = "PausedByMigrationMonitor";
    /// A disk failed.
    pub const PAUSED_IO_ERROR: &str = "PausedIOError";
    /// Cannot move: a disk is not shared.
    pub const DISKS_NOT_MIGRATABLE: &str = "DisksNotLiveMigratable";
    /// Cannot move: an interface.
    pub const INTERFACE_NOT_MIGRATABLE: &str = "InterfaceNotLiveMigratable";
    /// Cannot move: a plugged volume.
    pub const HOTPLUG_NOT_MIGRATABLE: &str = "HotplugNotLiveMigratable";
    /// Cannot move: the CPU model (the spelling is the API's).
    pub const CPU_MODE_NOT_MIGRATABLE: &str = "CPUModeLiveMigratable";
    /// Cannot move: a shared directory.
    pub const VIRTIOFS_NOT_MIGRATABLE: &str = "VirtIOFSNotLiveMigratable";
    /// Cannot move: a host device.
    pub const HOST_DEVICE_NOT_MIGRATABLE: &str = "HostDeviceNotLiveMigratable";
    /// Cannot move: AMD SEV.
    pub const SEV_NOT_MIGRATABLE: &str = "SEVNotLiveMigratable";
    /// Cannot move: Intel TDX.
    pub const TDX_NOT_MIGRATABLE: &str = "TDXNotLiveMigratable";
    /// Cannot move: IBM Secure Execution.
    pub const SECURE_EXECUTION_NOT_MIGRATABLE: &str = "SecureExecutionNotLiveMigratable";
    /// Cannot move: the clock frequency is not known.
    pub const NO_TSC_FREQUENCY_NOT_MIGRATABLE: &str = "NoTSCFrequencyNotLiveMigratable";
    /// Cannot move: Hyper-V passthrough.
    pub const HYPERV_PASSTHROUGH_NOT_MIGRATABLE: &str = "HypervPassthroughNotLiveMigratable";
    /// Cannot move: a SCSI reservation.
    pub const PERSISTENT_RESERVATION_NOT_MIGRATABLE: &str = "PersistentReservationNotLiveMigratable";
    /// Cannot move between clusters.
    pub const DECENTRALIZED_NOT_MIGRATABLE: &str = "DecentralizedNotLiveMigratable";
    /// Cannot move: more than one thing.
    pub const NOT_MIGRATABLE: &str = "NotMigratable";
    /// All data volumes are filled.
    pub const ALL_DVS_READY: &str = "AllDVsReady";
    /// Some data volumes are not filled.
    pub const NOT_ALL_DVS_READY: &str = "NotAllDVsReady";
    /// The replacement of volumes is taken back.
    pub const VOLUMES_CHANGE_CANCELLATION: &str = "VolumesChangeCancellation";
    /// A change needs a move.
    pub const AUTO_MIGRATION_DUE_TO_LIVE_UPDATE: &str = "AutoMigrationDueToLiveUpdate";
    /// A change may need a move.
    pub const AUTO_MIGRATION_PENDING: &str = "AutoMigrationPending";
    /// The guest has been asked to leave.
    pub const EVICTION_REQUESTED: &str = "EvictionRequested";
    /// A node is silent, or out of service.
    pub const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
    /// A volume could not be plugged.
    pub const HOTPLUG_VOLUME_ERROR: &str = "HotPlugVolumeError";
    /// CPUs could not be plugged.
    pub const HOTPLUG_CPU_ERROR: &str = "HotPlugCPUError";
    /// Memory could not be plugged.
    pub const HOTPLUG_MEMORY_ERROR: &str = "HotPlugMemoryError";
    /// Something could not be updated.
    pub const FAILED_UPDATE_ERROR: &str = "FailedUpdateError";
    /// A new affinity could not be handed on.
    pub const AFFINITY_CHANGE_ERROR: &str = "AffinityChangeError";
    /// New tolerations could not be handed on.
    pub const TOLERATIONS_CHANGE_ERROR: &str = "TolerationsChangeError";
    /// Volumes could not be replaced.
    pub const VOLUMES_UPDATE_ERROR: &str = "VolumesUpdateError";
    /// New annotations or labels could not be handed on.
    pub const ANNOTATIONS_LABELS_CHANGE_ERROR: &str = "AnnotationsLabelsChangeError";
    /// A memory dump failed.
    pub const MEMORY_DUMP_ERROR: &str = "MemoryDumpError";
    /// The firmware UUID could not be kept.
    pub const FIRMWARE_UUID_ERROR: &str = "FirmwareUUIDError";
    /// The instance type is missing.
    pub const FAILED_FIND_INSTANCETYPE: &str = "FailedFindInstancetype";
    /// The preference is missing.
    pub const FAILED_FIND_PREFERENCE: &str = "FailedFindPreference";
    /// Something failed that has no word of its own.
    pub const UNSUPPORTED_SYNC_ERROR: &str = "UnsupportedSyncError";
    /// Installation: on its way.
    pub const DEPLOYMENT_IN_PROGRESS: &str = "DeploymentInProgress";
    /// Installation: everything is there.
    pub const ALL_RESOURCES_CREATED: &str = "AllResourcesCreated";
    /// Installation: everything works.
    pub const ALL_COMPONENTS_READY: &str = "AllComponentsReady";
    /// Installation: on its way to another version.
    pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";
    /// Installation: failed.
    pub const DEPLOYMENT_FAILED: &str = "DeploymentFailed";
    /// Installation: on its way out.
    pub const DELETION_IN_PROGRESS: &str = "DeletionInProgress";
    /// Installation: removal failed.
    pub const DELETION_FAILED: &str = "DeletionFailed";
    /// Installation: another one is in charge.
    pub const EXISTING_DEPLOYMENT: &str = "ExistingDeployment";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Every constant of this file with its value, in order.
    fn constants() -> Vec<(&'static str, &'static str)> {
        let lines = include_str!("names.rs").lines().map(str::trim);
        let constants = lines.filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix("\";"));
        constants.filter_map(|line| line.split_once(": &str = \"")).collect()
    }

    #[test]
    fn nothing_is_spelled_twice() {
        let mut seen = BTreeSet::new();
        for (name, value) in constants() {
            // The group is also a label, and an eviction request is both a condition and its reason.
            let twice = ["kubevirt.io", "EvictionRequested"].contains(&value);
            assert!(seen.insert(value) || twice, "{name} repeats {value}");
        }
        assert!(seen.len() > 200, "the constants are read from this file");
    }

    #[test]
    fn names_are_valid_in_kubernetes() {
        for (name, value) in constants() {
            let (prefix, word) = value.split_once('/').unwrap_or(("a", value));
            let domain =
                prefix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte));
            let plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
            assert!(domain && plain && word.len() <= 63, "{name}: {value}");
        }
    }
}
