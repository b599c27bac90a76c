//! CPU and memory: amounts that can be counted and do not contradict each other.

use std::collections::BTreeMap;

use super::Guest;
use super::Reason::{Duplicate, Invalid, Required};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::is_label_word;
use crate::kubevirt::VmRolloutStrategy;
use crate::values::{MOST_MEMORY_OF_A_MACHINE, MOST_VCPUS_OF_A_MACHINE, Quantity};
use crate::vmi::{Cpu, IoThreadsPolicy, Memory, ResourceRequirements};

type GuestRule = Row<fn(&Guest<'_>) -> Problem>;
/// A field, and what is said about it.
type Advice = (&'static str, fn(&Guest<'_>) -> Problem);
type AmountRule = Row<fn(&AmountOf<'_>) -> Problem>;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
/// Less than this cannot hold a guest.
const LEAST_MEMORY: i64 = 1_000_000;
/// Sums of more than this could not be counted.
const MOST_MEMORY: i64 = 1 << 62;
/// The same for virtual CPUs, each of which costs memory too.
const MOST_VCPUS: u32 = 1 << 24;
/// Far more threads than help any disk; each costs memory in QEMU.
const MOST_IO_THREADS: u32 = 1024;
/// Memory is plugged in whole blocks of at least this size.
const PLUG_BLOCK: i64 = 2 << 20;
const SMALLEST_PAGE: i64 = 4096;
/// Threads that one core can have here.
const MOST_THREADS: u32 = 2;

impl<'a> Guest<'a> {
    pub(super) fn cpu(&self) -> Option<&'a Cpu> {
        self.spec.domain.cpu.as_ref()
    }

    fn memory(&self) -> Option<&'a Memory> {
        self.spec.domain.memory.as_ref()
    }

    pub(super) fn guest_memory(&self) -> Option<&'a Quantity> {
        self.memory()?.guest.as_ref()
    }

    fn resources(&self) -> Option<&'a ResourceRequirements> {
        self.spec.domain.resources.as_ref()
    }

    fn request(&self, name: &str) -> Option<&'a Quantity> {
        self.resources()?.requests.get(name)
    }

    fn limit(&self, name: &str) -> Option<&'a Quantity> {
        self.resources()?.limits.get(name)
    }

    pub(super) fn is_dedicated(&self) -> bool {
        self.cpu().is_some_and(|cpu| cpu.dedicated_cpu_placement)
    }

    fn page_text(&self) -> Option<&'a str> {
        self.memory()?.hugepages.as_ref()?.page_size.as_deref()
    }

    /// The size of a huge page, when it is one.
    fn page(&self) -> Option<i64> {
        let bytes = self.page_text()?.parse::<Quantity>().ok()?.value();
        let power = u64::try_from(bytes).is_ok_and(u64::is_power_of_two);
        (power && bytes >= SMALLEST_PAGE).then_some(bytes)
    }

    fn vcpus(&self) -> Option<u32> {
        self.cpu().map_or(Some(1), |cpu| cpu.topology().ok().map(crate::values::CpuTopology::vcpus))
    }
}

/// A machine may be made before anybody knows how large its guests are; guests may not.
pub(super) const MEMORY_IS_GIVEN: &str = "memory-is-given";

const MEMORY_RULES: &[GuestRule] = &[
    (MEMORY_IS_GIVEN, "domain.memory.guest", Required, |it| {
        if_so(it.guest_memory().is_none(), "is missing: set it, memory.hugepages or resources.requests.memory")
    }),
    ("memory-is-at-least-1M", "domain.memory.guest", Invalid, |it| {
        let guest = it.guest_memory()?;
        when(guest.value() < LEAST_MEMORY, || format!("is {guest}: a guest needs at least 1M"))
    }),
    ("memory-can-be-counted", "domain.memory.guest", Invalid, |it| {
        let guest = it.guest_memory()?;
        when(guest.value() > MOST_MEMORY, || format!("is {guest}: use at most 4Ei"))
    }),
    ("memory-request-is-at-least-1M", "domain.resources.requests.memory", Invalid, |it| {
        let request = it.request(MEMORY)?;
        when((0..LEAST_MEMORY).contains(&request.value()) && !request.is_zero(), || {
            format!("is {request}: a guest needs at least 1M")
        })
    }),
    ("max-memory-covers-memory", "domain.memory.maxGuest", Invalid, |it| {
        let (guest, most) = (it.guest_memory()?, it.memory()?.max_guest.as_ref()?);
        when(most.nanos() < guest.nanos(), || format!("is {most}, less than the {guest} that the guest starts with"))
    }),
    ("max-memory-can-be-counted", "domain.memory.maxGuest", Invalid, |it| {
        let most = it.memory()?.max_guest.as_ref()?;
        when(most.value() > MOST_MEMORY, || format!("is {most}: use at most 4Ei"))
    }),
    ("memory-grows-in-whole-blocks", "domain.memory.maxGuest", Invalid, |it| {
        let (guest, most) = (it.guest_memory()?, it.memory()?.max_guest.as_ref()?);
        let block = it.page().unwrap_or(PLUG_BLOCK).max(PLUG_BLOCK);
        let more = most.value().checked_sub(guest.value())?;
        when(more > 0 && more % block != 0, || {
            format!("is {most}: it must exceed memory.guest ({guest}) by a multiple of {} MiB", block >> 20)
        })
    }),
    ("hugepages-have-a-page-size", "domain.memory.hugepages.pageSize", Required, |it| {
        it.memory()?.hugepages.as_ref()?;
        if_so(it.page_text().is_none_or(str::is_empty), "is missing: use 2Mi or 1Gi")
    }),
    ("hugepages-page-size-is-one", "domain.memory.hugepages.pageSize", Invalid, |it| {
        let size = it.page_text().filter(|size| !size.is_empty())?;
        when(it.page().is_none(), || format!("is '{size}', which is no size of a page: use 2Mi or 1Gi"))
    }),
    ("memory-fills-a-huge-page", "domain.memory.guest", Invalid, |it| {
        let (guest, page) = (it.guest_memory()?, it.page()?);
        when(guest.value() < page, || {
            format!("is {guest}, less than a huge page of {}", it.page_text().unwrap_or_default())
        })
    }),
    ("memory-is-a-multiple-of-huge-pages", "domain.memory.guest", Invalid, |it| {
        let (guest, page) = (it.guest_memory()?, it.page()?);
        when(guest.value() > page && guest.value() % page != 0, || {
            format!("is {guest}, which is no multiple of the page size {}", it.page_text().unwrap_or_default())
        })
    }),
    ("memory-is-within-its-limit", "domain.memory.guest", Invalid, |it| {
        let (guest, limit) = (it.guest_memory()?, it.limit(MEMORY)?);
        let stage = it.cluster.vm_rollout_strategy == Some(VmRolloutStrategy::Stage);
        when(stage && guest.nanos() > limit.nanos(), || {
            format!("is {guest}, more than resources.limits.memory ({limit})")
        })
    }),
];

/// What is let in although no machine has it.
const BEYOND_MACHINES: &[Advice] = &[
    ("domain.memory.guest", |it| beyond_memory(it.guest_memory()?)),
    ("domain.memory.maxGuest", |it| beyond_memory(it.memory()?.max_guest.as_ref()?)),
    ("domain.cpu", |it| {
        let count = it.vcpus()?;
        when(count > MOST_VCPUS_OF_A_MACHINE, || {
            format!("has {count} virtual CPUs, and no machine has more than {MOST_VCPUS_OF_A_MACHINE}")
        })
    }),
];

fn beyond_memory(amount: &Quantity) -> Problem {
    when(amount.value() > MOST_MEMORY_OF_A_MACHINE, || {
        format!("is {amount}, and no processor can address more than 4Pi")
    })
}

/// A sentence for each amount that no machine has.
pub(super) fn beyond_machines(guest: &Guest<'_>, path: &Path<'_>) -> Vec<String> {
    let told = BEYOND_MACHINES.iter().filter_map(|(field, judge)| {
        judge(guest).map(|problem| format!("{} {problem}: no node can run the guest", path.field(field)))
    });
    told.collect()
}

const CPU_RULES: &[GuestRule] = &[
    ("cpus-can-be-counted", "domain.cpu", Invalid, |it| {
        let error = it.cpu()?.topology().err()?;
        Some(format!("is too large: {error}"))
    }),
    ("cpus-are-not-countless", "domain.cpu", Invalid, |it| {
        let count = it.vcpus()?;
        when(count > MOST_VCPUS, || format!("has {count} virtual CPUs: use at most {MOST_VCPUS}"))
    }),
    ("sockets-are-within-max-sockets", "domain.cpu.maxSockets", Invalid, |it| {
        let cpu = it.cpu()?;
        let most = cpu.max_sockets.filter(|most| *most > 0)?;
        let sockets = cpu.sockets.unwrap_or(1).max(1);
        when(sockets > most, || format!("is {most}, less than the {sockets} sockets that the guest starts with"))
    }),
    ("cpu-model-is-a-word", "domain.cpu.model", Invalid, |it| {
        let model = it.cpu()?.model.as_deref().filter(|model| !model.is_empty())?;
        when(!is_label_word(model), || format!("is '{model}', which is no name of a CPU model"))
    }),
    ("cpu-features-are-words", "domain.cpu.features", Invalid, |it| {
        let wrong = it.cpu()?.features.iter().find(|feature| !is_label_word(&feature.name))?;
        Some(format!("has '{}', which is no name of a CPU feature", wrong.name))
    }),
    ("cpu-features-are-there-once", "domain.cpu.features", Duplicate, |it| {
        let features = &it.cpu()?.features;
        let twice = |(index, feature): &(usize, &crate::vmi::CpuFeature)| {
            features[..*index].iter().any(|before| before.name == feature.name)
        };
        let (_, again) = features.iter().enumerate().find(twice)?;
        Some(format!("has '{}' twice: keep one", again.name))
    }),
    ("isolated-emulator-needs-dedicated-cpus", "domain.cpu.isolateEmulatorThread", Invalid, |it| {
        if_so(it.cpu()?.isolate_emulator_thread && !it.is_dedicated(), "needs dedicatedCpuPlacement")
    }),
    ("numa-passthrough-needs-dedicated-cpus", "domain.cpu.numa.guestMappingPassthrough", Invalid, |it| {
        it.cpu()?.numa.as_ref()?.guest_mapping_passthrough?;
        if_so(!it.is_dedicated(), "needs dedicatedCpuPlacement")
    }),
    ("numa-passthrough-needs-hugepages", "domain.cpu.numa.guestMappingPassthrough", Invalid, |it| {
        it.cpu()?.numa.as_ref()?.guest_mapping_passthrough?;
        if_so(it.page_text().is_none(), "needs memory.hugepages")
    }),
    ("dedicated-cpu-request-is-whole", "domain.resources.requests.cpu", Invalid, |it| {
        let request = it.request(CPU).filter(|request| it.is_dedicated() && !is_whole(request))?;
        Some(format!("is {request}: dedicated CPUs are whole"))
    }),
    ("dedicated-cpu-limit-is-whole", "domain.resources.limits.cpu", Invalid, |it| {
        let limit = it.limit(CPU).filter(|limit| it.is_dedicated() && !is_whole(limit))?;
        Some(format!("is {limit}: dedicated CPUs are whole"))
    }),
    ("dedicated-cpu-request-equals-limit", "domain.resources.limits.cpu", Invalid, |it| {
        let (request, limit) = (it.request(CPU)?, it.limit(CPU)?);
        when(it.is_dedicated() && request.nanos() != limit.nanos(), || {
            format!("is {limit}, not the {request} that is requested: dedicated CPUs need both to be equal")
        })
    }),
    ("dedicated-memory-request-equals-limit", "domain.resources.limits.memory", Invalid, |it| {
        let (request, limit) = (it.request(MEMORY)?, it.limit(MEMORY)?);
        when(it.is_dedicated() && request.nanos() != limit.nanos(), || {
            format!("is {limit}, not the {request} that is requested: dedicated CPUs need both to be equal")
        })
    }),
    ("dedicated-cpus-equal-the-topology", "domain.cpu", Invalid, |it| {
        let amount = it.request(CPU).or(it.limit(CPU)).filter(|_| it.is_dedicated())?;
        let count = it.vcpus()?;
        when(amount.nanos() != i128::from(count) * 1_000_000_000, || {
            format!("has {count} virtual CPUs, but {amount} are requested: dedicated CPUs need both to be equal")
        })
    }),
    ("dedicated-cores-have-two-threads", "domain.cpu.threads", Invalid, |it| {
        let threads = it.cpu()?.threads.filter(|_| it.is_dedicated())?;
        when(threads > MOST_THREADS, || format!("is {threads}: a dedicated core has at most {MOST_THREADS} threads"))
    }),
    ("io-thread-pool-has-threads", "domain.ioThreads.supplementalPoolThreadCount", Required, |it| {
        let pool = it.spec.domain.io_threads_policy == Some(IoThreadsPolicy::SupplementalPool);
        if_so(
            pool && it.pool().is_none_or(|count| count == 0),
            "is missing: the policy supplementalPool needs at least 1",
        )
    }),
    ("io-thread-pool-is-small", "domain.ioThreads.supplementalPoolThreadCount", Invalid, |it| {
        let count = it.pool()?;
        when(count > MOST_IO_THREADS, || format!("is {count}: use at most {MOST_IO_THREADS}"))
    }),
];

impl Guest<'_> {
    fn pool(&self) -> Option<u32> {
        self.spec.domain.io_threads.as_ref()?.supplemental_pool_thread_count
    }
}

fn is_whole(amount: &Quantity) -> bool {
    amount.nanos() % 1_000_000_000 == 0
}

/// One resource with its request and its limit.
struct AmountOf<'a> {
    request: Option<&'a Quantity>,
    limit: Option<&'a Quantity>,
}

const AMOUNT_REQUESTED: &[AmountRule] = &[
    ("request-is-not-negative", "", Invalid, |it| {
        let request = it.request?;
        when(request.nanos() < 0, || format!("is {request}: it cannot be negative"))
    }),
    ("request-is-within-its-limit", "", Invalid, |it| {
        let (request, limit) = (it.request?, it.limit?);
        when(request.nanos() > limit.nanos(), || format!("is {request}, more than the limit of {limit}"))
    }),
];

const AMOUNT_LIMITED: &[AmountRule] = &[("limit-is-not-negative", "", Invalid, |it| {
    let limit = it.limit?;
    when(limit.nanos() < 0, || format!("is {limit}: it cannot be negative"))
})];

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    findings.apply(MEMORY_RULES, guest, path);
    findings.apply(CPU_RULES, guest, path);
    let Some(resources) = guest.resources() else { return };
    let both = path.field("domain.resources");
    let amounts =
        |list: &'static str, amounts: &BTreeMap<String, Quantity>, rows: &[AmountRule], findings: &mut Findings| {
            for name in amounts.keys() {
                let subject = AmountOf { request: resources.requests.get(name), limit: resources.limits.get(name) };
                findings.apply(rows, &subject, &both.field(list).field(name));
            }
        };
    amounts("requests", &resources.requests, AMOUNT_REQUESTED, findings);
    amounts("limits", &resources.limits, AMOUNT_LIMITED, findings);
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(MEMORY_RULES).chain(names(CPU_RULES)).chain(names(AMOUNT_REQUESTED)).chain(names(AMOUNT_LIMITED))
}
