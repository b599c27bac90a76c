//! Memory: how much, on which pages, shared with whom, and how much more can be plugged.

use ferrovirt_api::names::annotations;
use ferrovirt_api::values::{MOST_MEMORY_OF_A_MACHINE, Quantity};
use ferrovirt_api::vmi::DomainSpec;

use super::Guest;
use crate::pci::{Places, Role};
use crate::unsupported::Unsupported;
use crate::xml::devices::{Balloon, MemoryDevice, MemoryTarget, Stats};
use crate::xml::{Flag, Hugepages, Kibibytes, MaxMemory, MemoryBacking, Mode, Page, Typed};

/// The grain of memory that is plugged while a guest runs; x86 guests online it in at least this much.
const PLUG_BLOCK: u64 = 2 << 20;
/// Seconds between the statistics that the balloon collects.
const STATISTICS_PERIOD: u32 = 10;

/// What the guest boots with, in bytes: what it sees, else what its pod asks for, else one huge page.
pub(super) fn guest(spec: &DomainSpec) -> Result<u64, Unsupported> {
    let memory = spec.memory.as_ref();
    let resources = spec.resources.as_ref();
    let from_pod = |amounts: fn(&ferrovirt_api::vmi::ResourceRequirements) -> Option<&Quantity>| {
        resources.and_then(amounts).filter(|quantity| !quantity.is_zero())
    };
    let wanted = memory
        .and_then(|memory| memory.guest.as_ref())
        .or_else(|| from_pod(|resources| resources.requests.get("memory")))
        .or_else(|| from_pod(|resources| resources.limits.get("memory")));
    let bytes = match wanted {
        Some(quantity) => u64::try_from(quantity.value()).unwrap_or(0),
        None => page_size(spec)?.unwrap_or(0),
    };
    if bytes == 0 {
        let written = wanted.map_or_else(|| "\"\"".to_owned(), ToString::to_string);
        return Err(Unsupported::new("spec.domain.memory.guest", written, "a guest needs memory, such as 1Gi"));
    }
    addressable("spec.domain.memory.guest", bytes)?;
    Ok(bytes)
}

/// More than any processor can address is admitted and cannot start.
fn addressable(path: &str, bytes: u64) -> Result<(), Unsupported> {
    match i64::try_from(bytes) {
        Ok(bytes) if bytes <= MOST_MEMORY_OF_A_MACHINE => Ok(()),
        _ => Err(Unsupported::new(path, Quantity::from_bytes(bytes), "no processor can address more than 4Pi")),
    }
}

/// The size of huge pages, when they are asked for.
pub(super) fn page_size(spec: &DomainSpec) -> Result<Option<u64>, Unsupported> {
    let pages = spec.memory.as_ref().and_then(|memory| memory.hugepages.as_ref());
    let Some(size) = pages.and_then(|pages| pages.page_size.as_deref()) else {
        return Ok(None);
    };
    let bytes = size.parse::<Quantity>().ok().and_then(|size| u64::try_from(size.value()).ok());
    let bytes = bytes.filter(|bytes| *bytes >= 4096 && bytes.is_power_of_two());
    let refuse = || Unsupported::new("spec.domain.memory.hugepages.pageSize", size, "a page is 2Mi or 1Gi large");
    bytes.map(Some).ok_or_else(refuse)
}

/// Huge pages, and sharing for processes that serve the guest's devices.
pub(super) fn backing(guest: &Guest<'_>) -> Result<Option<MemoryBacking>, Unsupported> {
    let page = page_size(guest.spec)?;
    let shared = !guest.spec.devices.filesystems.is_empty();
    if page.is_none() && !shared {
        return Ok(None);
    }
    let memfd = guest.annotation(annotations::MEMFD) != Some("false") || shared;
    let passthrough = super::cpu::numa_passthrough(guest);
    Ok(Some(MemoryBacking {
        hugepages: page.map(|size| Hugepages { page: Page { size: size / 1024, unit: "KiB", nodeset: None } }),
        // Pages of one node must not be merged with those of another.
        nosharepages: passthrough.then_some(Flag {}),
        source: memfd.then_some(Typed { kind: "memfd" }),
        access: shared.then_some(Mode { mode: "shared" }),
    }))
}

/// Memory that can be plugged on top, in bytes.
pub(super) fn pluggable(guest: &Guest<'_>) -> Result<Option<u64>, Unsupported> {
    let most = guest.spec.memory.as_ref().and_then(|memory| memory.max_guest.as_ref());
    let Some((most, bytes)) = most.map(|most| (most, u64::try_from(most.value()).unwrap_or(0))) else {
        return Ok(None);
    };
    let path = "spec.domain.memory.maxGuest";
    addressable(path, bytes)?;
    if bytes < guest.memory {
        return Err(Unsupported::new(path, most, "the guest starts with more"));
    }
    let (more, block) = (bytes - guest.memory, block_size(guest)?);
    if more % block != 0 {
        let why = format!("it must exceed spec.domain.memory.guest by a multiple of {} MiB", block >> 20);
        return Err(Unsupported::new(path, most, why));
    }
    Ok(Some(more).filter(|more| *more > 0))
}

fn block_size(guest: &Guest<'_>) -> Result<u64, Unsupported> {
    Ok(page_size(guest.spec)?.unwrap_or(PLUG_BLOCK).max(PLUG_BLOCK))
}

pub(super) fn maximum(guest: &Guest<'_>) -> Result<Option<MaxMemory>, Unsupported> {
    let amount = pluggable(guest)?.map(|more| (guest.memory + more).div_ceil(1024));
    Ok(amount.map(|amount| MaxMemory { slots: 1, unit: "KiB", amount }))
}

/// The device through which memory grows; nothing of it is plugged at boot.
pub(super) fn device(guest: &Guest<'_>, places: &mut Places) -> Result<Option<MemoryDevice>, Unsupported> {
    let Some(more) = pluggable(guest)? else {
        return Ok(None);
    };
    let target = MemoryTarget {
        size: Kibibytes::from_bytes(more),
        node: 0,
        block: Kibibytes::from_bytes(block_size(guest)?),
        requested: Kibibytes::from_bytes(0),
    };
    let address = places.fixed(Role::Memory, 0, "spec.domain.memory.maxGuest")?;
    Ok(Some(MemoryDevice { model: "virtio-mem", target, address }))
}

/// The balloon: statistics, and free pages that go back to the host.
pub(super) fn balloon(guest: &Guest<'_>, places: &mut Places) -> Result<Balloon, Unsupported> {
    if guest.spec.devices.autoattach_mem_balloon == Some(false) {
        return Ok(Balloon { model: "none", ..Balloon::default() });
    }
    // Huge pages and the memory of dedicated CPUs are reserved: nothing would get the pages that are given back.
    let keep = guest.dedicated()
        || page_size(guest.spec)?.is_some()
        || guest.annotation(annotations::FREE_PAGE_REPORTING_DISABLED) == Some("true");
    Ok(Balloon {
        model: guest.virtio_model(),
        free_page_reporting: Some(crate::xml::on_off(!keep)),
        stats: Some(Stats { period: STATISTICS_PERIOD }),
        address: Some(places.fixed(Role::Balloon, 0, "spec.domain.devices.autoattachMemBalloon")?),
    })
}
