//! Numbers of libvirt's API as names.

/// An enum of wire numbers; a number without a name is kept, so that a newer libvirt is no error.
macro_rules! wire_enum {
    ($(#[$about:meta])* $name:ident { $($(#[$case_about:meta])* $case:ident = $number:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$case_about])* $case,)+
            /// A number that has no name here.
            Other(i32),
        }

        impl From<i32> for $name {
            fn from(number: i32) -> Self {
                match number {
                    $($number => Self::$case,)+
                    other => Self::Other(other),
                }
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// Why a domain does not run for the moment.
    PausedReason {
        /// libvirt does not know.
        Unknown = 0,
        /// Somebody asked for it.
        User = 1,
        /// A migration.
        Migration = 2,
        /// It is being saved.
        Save = 3,
        /// It is being dumped.
        Dump = 4,
        /// A disk failed or is full.
        IoError = 5,
        /// The watchdog.
        Watchdog = 6,
        /// After a snapshot was restored.
        FromSnapshot = 7,
        /// It powered off and QEMU still lives.
        ShuttingDown = 8,
        /// While a snapshot is made.
        Snapshot = 9,
        /// The guest panicked.
        Crashed = 10,
        /// Before its first instruction.
        StartingUp = 11,
        /// The other half of a post-copy migration runs.
        Postcopy = 12,
        /// A post-copy migration broke.
        PostcopyFailed = 13,
        /// An operation failed half way.
        ApiError = 14,
    }
}

wire_enum! {
    /// Why a domain is off.
    ShutoffReason {
        /// libvirt does not know, or it never ran.
        Unknown = 0,
        /// The guest powered off.
        Shutdown = 1,
        /// Killed by an API call.
        Destroyed = 2,
        /// QEMU died.
        Crashed = 3,
        /// It moved away.
        Migrated = 4,
        /// It was saved.
        Saved = 5,
        /// It did not start.
        Failed = 6,
        /// A snapshot of an inactive domain was restored.
        FromSnapshot = 7,
        /// libvirtd decided so.
        Daemon = 8,
    }
}

wire_enum! {
    /// Why a domain was suspended.
    SuspendedDetail {
        /// Somebody asked for it.
        Paused = 0,
        /// A migration.
        Migrated = 1,
        /// A disk failed or is full.
        IoError = 2,
        /// The watchdog.
        Watchdog = 3,
        /// Restored paused.
        Restored = 4,
        /// After a snapshot was restored.
        FromSnapshot = 5,
        /// An operation failed half way.
        ApiError = 6,
        /// The other half of a post-copy migration runs.
        Postcopy = 7,
        /// A post-copy migration broke.
        PostcopyFailed = 8,
        /// The guest powered off and QEMU still lives.
        GuestShutdown = 9,
    }
}

wire_enum! {
    /// Why a domain stopped.
    StoppedDetail {
        /// The guest powered off.
        Shutdown = 0,
        /// Killed by an API call.
        Destroyed = 1,
        /// QEMU or the guest crashed.
        Crashed = 2,
        /// It moved away.
        Migrated = 3,
        /// It was saved.
        Saved = 4,
        /// It did not start, or QEMU ended by itself.
        Failed = 5,
        /// A snapshot was restored.
        FromSnapshot = 6,
        /// QEMU was started anew for the same guest.
        Recreated = 7,
    }
}

wire_enum! {
    /// Who made the guest shut down.
    ShutdownDetail {
        /// QEMU does not say.
        Finished = 0,
        /// The guest.
        Guest = 1,
        /// A signal to QEMU.
        Host = 2,
    }
}

wire_enum! {
    /// How a guest crashed.
    CrashedDetail {
        /// Its kernel panicked.
        Panicked = 0,
        /// Its kernel panicked and handles that itself.
        CrashLoaded = 1,
    }
}

wire_enum! {
    /// What QEMU did about a failed disk.
    IoErrorAction {
        /// Nothing.
        None = 0,
        /// The guest is paused.
        Pause = 1,
        /// The guest was told.
        Report = 2,
    }
}

wire_enum! {
    /// Whether the guest agent holds its end of the channel.
    AgentState {
        /// It does.
        Connected = 1,
        /// It does not.
        Disconnected = 2,
    }
}

/// A step in a domain's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// The configuration was stored.
    Defined,
    /// The configuration is gone.
    Undefined,
    /// QEMU runs.
    Started,
    /// The guest is stopped for the moment.
    Suspended(SuspendedDetail),
    /// The guest runs again.
    Resumed,
    /// QEMU is gone.
    Stopped(StoppedDetail),
    /// The guest powered off, or QEMU was told to end; QEMU follows, or a reset where a reboot was asked for.
    Shutdown(ShutdownDetail),
    /// The guest sleeps.
    PmSuspended,
    /// The guest crashed.
    Crashed(CrashedDetail),
    /// Anything newer.
    Other {
        /// The event's number.
        event: i32,
        /// The detail's number.
        detail: i32,
    },
}

impl Lifecycle {
    pub(crate) fn new(event: i32, detail: i32) -> Self {
        match event {
            0 => Self::Defined,
            1 => Self::Undefined,
            2 => Self::Started,
            3 => Self::Suspended(detail.into()),
            4 => Self::Resumed,
            5 => Self::Stopped(detail.into()),
            6 => Self::Shutdown(detail.into()),
            7 => Self::PmSuspended,
            8 => Self::Crashed(detail.into()),
            _ => Self::Other { event, detail },
        }
    }
}
