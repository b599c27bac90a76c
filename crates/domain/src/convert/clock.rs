//! The guest's clock and timers.

use ferrovirt_api::meta::FeatureState;
use ferrovirt_api::vmi::{
    CpuFeaturePolicy, HpetTickPolicy, PitTickPolicy, RtcTickPolicy, RtcTimerTrack, Timer as Timers,
};

use super::Guest;
use crate::unsupported::Unsupported;
use crate::xml::features::{Clock, Timer};
use crate::xml::yes_no;

/// The clock: UTC unless the guest wants another time.
pub(super) fn clock(guest: &Guest<'_>) -> Result<Clock, Unsupported> {
    let mut clock = Clock { offset: "utc", ..Clock::default() };
    if let Some(wanted) = &guest.spec.clock {
        if let Some(timezone) = wanted.timezone.as_ref().filter(|zone| !zone.is_empty()) {
            clock = Clock { offset: "timezone", timezone: Some(timezone.clone()), ..clock };
        } else if let Some(seconds) = wanted.utc.as_ref().and_then(|utc| utc.offset_seconds) {
            clock = Clock { offset: "variable", adjustment: Some(seconds), basis: Some("utc"), ..clock };
        }
        if let Some(wanted) = &wanted.timer {
            clock.timer = timers(wanted)?;
        }
    }
    clock.timer.extend(time_stamp_counter(guest));
    Ok(clock)
}

fn timers(wanted: &Timers) -> Result<Vec<Timer>, Unsupported> {
    let timer = |name, present: Option<bool>| Timer {
        name,
        present: Some(yes_no(present.unwrap_or(true))),
        ..Timer::default()
    };
    let mut timers = Vec::new();
    if let Some(rtc) = &wanted.rtc {
        let (tickpolicy, track) = (rtc.tick_policy.map(RtcTickPolicy::as_str), rtc.track.map(RtcTimerTrack::as_str));
        timers.push(Timer { tickpolicy, track, ..timer("rtc", rtc.present) });
    }
    if let Some(pit) = &wanted.pit {
        if pit.tick_policy == Some(PitTickPolicy::Catchup) {
            return Err(unknown_policy("pit", "catchup", "delay and discard"));
        }
        let tickpolicy = pit.tick_policy.map(PitTickPolicy::as_str);
        timers.push(Timer { tickpolicy, ..timer("pit", pit.present) });
    }
    if let Some(kvm) = &wanted.kvm {
        timers.push(timer("kvmclock", kvm.present));
    }
    if let Some(hpet) = &wanted.hpet {
        if let Some(policy) = hpet.tick_policy.filter(|policy| *policy != HpetTickPolicy::Delay) {
            return Err(unknown_policy("hpet", policy.as_str(), "delay"));
        }
        let tickpolicy = hpet.tick_policy.map(HpetTickPolicy::as_str);
        timers.push(Timer { tickpolicy, ..timer("hpet", hpet.present) });
    }
    if let Some(hyperv) = &wanted.hyperv {
        timers.push(timer("hypervclock", hyperv.present));
    }
    Ok(timers)
}

fn unknown_policy(timer: &str, policy: &str, known: &str) -> Unsupported {
    let path = format!("spec.domain.clock.timer.{timer}.tickPolicy");
    Unsupported::new(path, policy, format!("QEMU's {timer} can {known}"))
}

/// A fixed frequency, for guests that count on it after a move: they are only placed where the host can keep it.
fn time_stamp_counter(guest: &Guest<'_>) -> Option<Timer> {
    let frequency = guest.vmi.status.as_ref()?.topology_hints.as_ref()?.tsc_frequency?;
    let invariant = guest.spec.cpu.as_ref().is_some_and(|cpu| {
        let on = |policy| matches!(policy, CpuFeaturePolicy::Require | CpuFeaturePolicy::Force);
        cpu.features
            .iter()
            .any(|feature| feature.name == "invtsc" && on(feature.policy.unwrap_or(CpuFeaturePolicy::Require)))
    });
    let hyperv = guest.spec.features.as_ref().and_then(|features| features.hyperv.as_ref());
    let reenlightened = hyperv.and_then(|hyperv| hyperv.reenlightenment).is_some_and(FeatureState::is_on);
    let timer = Timer { name: "tsc", frequency: Some(frequency), ..Timer::default() };
    (invariant || reenlightened).then_some(timer)
}
