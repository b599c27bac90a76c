//! The guest's clock and timers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::string_enum::string_enum;

/// Clock of the guest: an offset to UTC or a time zone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Clock {
    /// UTC with an offset.
    pub utc: Option<ClockOffsetUtc>,
    /// A time zone, such as `Europe/Vienna`.
    pub timezone: Option<String>,
    /// Timers that the guest can use.
    pub timer: Option<Timer>,
}

/// UTC with an offset.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClockOffsetUtc {
    /// Seconds that the guest's clock differs; kept by the guest when unset.
    pub offset_seconds: Option<i64>,
}

/// Timers that the guest can use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timer {
    /// High precision event timer.
    pub hpet: Option<HpetTimer>,
    /// KVM's paravirtual clock.
    pub kvm: Option<KvmTimer>,
    /// Programmable interval timer.
    pub pit: Option<PitTimer>,
    /// Real-time clock.
    pub rtc: Option<RtcTimer>,
    /// Hyper-V's reference clock.
    pub hyperv: Option<HypervTimer>,
}

/// High precision event timer.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HpetTimer {
    /// What happens to missed ticks.
    pub tick_policy: Option<HpetTickPolicy>,
    /// Whether the guest has it; yes when unset.
    pub present: Option<bool>,
}

/// Programmable interval timer.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PitTimer {
    /// What happens to missed ticks.
    pub tick_policy: Option<PitTickPolicy>,
    /// Whether the guest has it; yes when unset.
    pub present: Option<bool>,
}

/// Real-time clock.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RtcTimer {
    /// What happens to missed ticks.
    pub tick_policy: Option<RtcTickPolicy>,
    /// Whether the guest has it; yes when unset.
    pub present: Option<bool>,
    /// What the clock follows.
    pub track: Option<RtcTimerTrack>,
}

/// KVM's paravirtual clock.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KvmTimer {
    /// Whether the guest has it; yes when unset.
    pub present: Option<bool>,
}

/// Hyper-V's reference clock.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HypervTimer {
    /// Whether the guest has it; yes when unset.
    pub present: Option<bool>,
}

string_enum! {
    /// What happens to missed ticks of the HPET.
    pub enum HpetTickPolicy {
        /// They come late, one by one.
        Delay = "delay",
        /// They come faster until time is right again.
        Catchup = "catchup",
        /// They come as one.
        Merge = "merge",
        /// They are dropped.
        Discard = "discard",
    }
}

string_enum! {
    /// What happens to missed ticks of the PIT.
    pub enum PitTickPolicy {
        /// They come late, one by one.
        Delay = "delay",
        /// They come faster until time is right again.
        Catchup = "catchup",
        /// They are dropped.
        Discard = "discard",
    }
}

string_enum! {
    /// What happens to missed ticks of the real-time clock.
    pub enum RtcTickPolicy {
        /// They come late, one by one.
        Delay = "delay",
        /// They come faster until time is right again.
        Catchup = "catchup",
    }
}

string_enum! {
    /// What the real-time clock follows.
    pub enum RtcTimerTrack {
        /// The guest's own running time.
        Guest = "guest",
        /// The host's time.
        Wall = "wall",
    }
}
