//! Memory of emulated guests, so that a move copies all of it.
//!
//! QEMU before 9.0 forgets some of what an *emulated* processor writes while it sends memory: it notes changed pages in words of 64, and
//! where a block of memory consists of whole words it clears them without telling the processor, which then writes on without noting. The
//! guest arrives with old pages. (With KVM the kernel notes changes; there it does not happen.) Memory that is a little larger than whole
//! words is handled page by page, and rightly. libvirt rounds memory to MiB, so QEMU is told by arguments of its own.

use quick_xml::Reader;
use quick_xml::events::Event;

/// The first QEMU that does it right, as libvirt packs versions.
const RIGHT_SINCE: u64 = 9_000_000;
/// The name of the memory; a domain that has it can be moved while it runs.
const BACKEND: &str = "memory-backend-ram,id=counted-by-page";
const NAME: &str = "counted-by-page";
const NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
/// What libvirt rounds to, and what is added: QEMU takes multiples of 8 KiB, and 256 KiB are a word.
const ROUNDED_KIB: u64 = 1024;
const MORE_KIB: u64 = 8;

/// The domain with memory whose changes are all noted; `None` if nothing is to be done, or nothing can be.
pub fn counted_by_page(xml: &str, qemu: u64) -> Option<String> {
    let kib = plain_memory(xml).filter(|_| qemu < RIGHT_SINCE)?;
    let size = kib.div_ceil(ROUNDED_KIB) * ROUNDED_KIB + MORE_KIB;
    let arguments = ["-m", &format!("size={size}k"), "-object", &format!("{BACKEND},size={size}k"), "-machine"];
    let last = format!("memory-backend={NAME}");
    let arguments: String =
        arguments.into_iter().chain([last.as_str()]).map(|value| format!("<qemu:arg value='{value}'/>")).collect();
    // Arguments of the domain's own come first.
    let (end, text) = match xml.rfind("</qemu:commandline>") {
        Some(end) => (end, arguments),
        None => (
            xml.rfind("</domain>")?,
            format!("<qemu:commandline xmlns:qemu='{NAMESPACE}'>{arguments}</qemu:commandline>"),
        ),
    };
    Some(format!("{}{text}{}", &xml[..end], &xml[end..]))
}

/// Whether some of what the guest writes would be lost if it was moved while it runs.
pub fn loses_changes(xml: &str, emulated: bool, qemu: u64) -> bool {
    emulated && qemu < RIGHT_SINCE && !xml.contains(BACKEND)
}

/// The memory in KiB of an emulated domain whose memory is of the plain kind.
fn plain_memory(xml: &str) -> Option<u64> {
    let mut reader = Reader::from_str(xml);
    let mut path: Vec<String> = Vec::new();
    let (mut emulated, mut unit, mut memory) = (false, 1024, None);
    loop {
        let event = reader.read_event().ok()?;
        if let Event::Start(element) | Event::Empty(element) = &event {
            path.push(element.local_name().as_ref().to_owned());
            let names: Vec<&str> = path.iter().map(String::as_str).collect();
            let attribute = |name: &str| {
                let attribute = element.try_get_attribute(name).ok().flatten();
                attribute.map(|attribute| String::from(attribute.value.as_ref()))
            };
            match names.as_slice() {
                ["domain"] => emulated = attribute("type").as_deref() == Some("qemu"),
                ["domain", "memory"] => unit = bytes_per_unit(attribute("unit").as_deref())?,
                ["domain", "memoryBacking" | "maxMemory"] | ["domain", "cpu", "numa"] => return None,
                _ => {}
            }
        }
        match &event {
            Event::Empty(_) | Event::End(_) => drop(path.pop()),
            Event::Text(text) if path.iter().map(String::as_str).eq(["domain", "memory"]) => {
                memory = text.xml10_content().trim().parse::<u64>().ok()?.checked_mul(unit);
            }
            Event::Eof => return memory.filter(|_| emulated).map(|bytes| bytes.div_ceil(1024)),
            _ => {}
        }
    }
}

fn bytes_per_unit(unit: Option<&str>) -> Option<u64> {
    match unit {
        None | Some("KiB" | "k") => Some(1 << 10),
        Some("b" | "bytes") => Some(1),
        Some("MiB" | "M") => Some(1 << 20),
        Some("GiB" | "G") => Some(1 << 30),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u64 = 7_002_022;

    #[test]
    fn memory_is_a_little_more_than_whole_words() {
        let xml = counted_by_page("<domain type='qemu'><memory unit='MiB'>32</memory><cpu/></domain>", OLD).unwrap();
        assert!(xml.contains("'size=32776k'") && xml.contains("id=counted-by-page,size=32776k"), "{xml}");
        assert!(xml.ends_with("</qemu:commandline></domain>"), "{xml}");
        assert!(!loses_changes(&xml, true, OLD));
        let odd = counted_by_page("<domain type='qemu'><memory>1025</memory></domain>", OLD).unwrap();
        assert!(odd.contains("'size=2056k'"), "{odd}");
    }

    #[test]
    fn arguments_of_the_domain_stay() {
        let xml = "<domain type='qemu' xmlns:qemu='x'><memory>1024</memory><qemu:commandline><qemu:arg value='-a'/></qemu:commandline></domain>";
        let xml = counted_by_page(xml, OLD).unwrap();
        assert_eq!(xml.matches("<qemu:commandline").count(), 1);
        assert!(xml.contains("<qemu:arg value='-a'/><qemu:arg value='-m'/>"), "{xml}");
    }

    #[test]
    fn what_needs_nothing_or_is_special_is_left_alone() {
        let plain = "<domain type='qemu'><memory>1024</memory></domain>";
        assert_eq!(counted_by_page(plain, RIGHT_SINCE), None);
        assert!(!loses_changes(plain, true, RIGHT_SINCE) && !loses_changes(plain, false, OLD));
        for special in [
            "<domain type='kvm'><memory>1024</memory></domain>",
            "<domain type='qemu'><memory>1024</memory><memoryBacking/></domain>",
            "<domain type='qemu'><maxMemory slots='2'>4096</maxMemory><memory>1024</memory></domain>",
            "<domain type='qemu'><memory>1024</memory><cpu><numa/></cpu></domain>",
            "<domain type='qemu'></domain>",
        ] {
            assert_eq!(counted_by_page(special, OLD), None, "{special}");
        }
        assert!(loses_changes("<domain type='qemu'><memoryBacking/></domain>", true, OLD));
    }
}
