//! The numbers of the calls that are used.

use crate::packet::Program;

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Procedure {
    pub(crate) program: Program,
    pub(crate) number: i32,
    /// For messages.
    pub(crate) name: &'static str,
}

macro_rules! procedures {
    ($program:ident: $($name:ident = $number:literal, $text:literal;)+) => {
        $(pub(crate) const $name: Procedure =
            Procedure { program: Program::$program, number: $number, name: $text };)+
    };
}

procedures! { Remote:
    CONNECT_OPEN = 1, "open";
    GET_VERSION = 4, "get-version";
    GET_CAPABILITIES = 7, "capabilities";
    GET_XML = 14, "domain-get-xml";
    LOOKUP_BY_NAME = 23, "domain-lookup-by-name";
    LOOKUP_BY_UUID = 24, "domain-lookup-by-uuid";
    REBOOT = 27, "domain-reboot";
    RESUME = 28, "domain-resume";
    SUSPEND = 34, "domain-suspend";
    AUTH_LIST = 66, "auth-list";
    GET_LIB_VERSION = 157, "get-lib-version";
    ATTACH_DEVICE = 160, "domain-attach-device";
    DETACH_DEVICE = 161, "domain-detach-device";
    ABORT_JOB = 164, "domain-abort-job";
    MIGRATE_SET_MAX_DOWNTIME = 166, "domain-migrate-set-max-downtime";
    UPDATE_DEVICE = 174, "domain-update-device";
    CREATE = 196, "domain-create";
    MIGRATE_SET_MAX_SPEED = 207, "domain-migrate-set-max-speed";
    SCREENSHOT = 211, "domain-screenshot";
    GET_STATE = 212, "domain-get-state";
    UNDEFINE = 231, "domain-undefine";
    DESTROY = 234, "domain-destroy";
    RESET = 245, "domain-reset";
    BLOCK_RESIZE = 251, "domain-block-resize";
    SHUTDOWN = 258, "domain-shutdown";
    WAKE_UP = 267, "domain-pm-wakeup";
    LIST_DOMAINS = 273, "list-domains";
    GET_JOB_STATS = 298, "domain-get-job-stats";
    MIGRATE_BEGIN = 302, "domain-migrate-begin";
    MIGRATE_PREPARE = 303, "domain-migrate-prepare";
    MIGRATE_PERFORM = 305, "domain-migrate-perform";
    MIGRATE_FINISH = 306, "domain-migrate-finish";
    MIGRATE_CONFIRM = 307, "domain-migrate-confirm";
    REGISTER_EVENT = 316, "register-event";
    FREEZE = 335, "domain-fs-freeze";
    THAW = 336, "domain-fs-thaw";
    SET_TIME = 338, "domain-set-time";
    GET_DOMAIN_CAPABILITIES = 342, "domain-capabilities";
    DEFINE = 350, "domain-define";
    INTERFACE_ADDRESSES = 353, "domain-interface-addresses";
    MIGRATE_START_POST_COPY = 364, "domain-migrate-start-post-copy";
    GUEST_INFO = 418, "domain-get-guest-info";
}

procedures! { Qemu:
    MONITOR_COMMAND = 1, "qemu-monitor-command";
    AGENT_COMMAND = 3, "qemu-agent-command";
}

/// Events, by the number of the message that carries them.
pub(crate) mod events {
    pub(crate) const LIFECYCLE: i32 = 318;
    pub(crate) const REBOOT: i32 = 319;
    pub(crate) const WATCHDOG: i32 = 321;
    pub(crate) const IO_ERROR_REASON: i32 = 324;
    pub(crate) const CONTROL_ERROR: i32 = 325;
    pub(crate) const DEVICE_REMOVED: i32 = 333;
    pub(crate) const AGENT_LIFECYCLE: i32 = 348;
    pub(crate) const DEVICE_ADDED: i32 = 354;
    pub(crate) const MIGRATION_ITERATION: i32 = 359;
    pub(crate) const JOB_COMPLETED: i32 = 363;
}

/// Keep-alive messages.
pub(crate) const PING: i32 = 1;
pub(crate) const PONG: i32 = 2;
