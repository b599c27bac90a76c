//! What each sample becomes, byte by byte.

use ferrovirt_domain::domain;

use crate::samples;

#[test]
fn samples_become_their_golden_documents() {
    for sample in samples::all() {
        let domain = domain(&sample.vmi, &sample.facts, &sample.links);
        let domain = domain.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
        insta::assert_snapshot!(sample.name, domain.to_xml());
    }
}

#[test]
fn the_same_guest_becomes_the_same_document() {
    let sample = samples::named("everything");
    let write = || domain(&sample.vmi, &sample.facts, &sample.links).unwrap().to_xml();
    assert_eq!(write(), write());
}

#[test]
fn text_never_becomes_markup() {
    let hostile = "\"'></cmdline><devices><emulator>/tmp/x</emulator>&amp;";
    let mut sample = samples::named("kernel-boot");
    let firmware = sample.vmi.spec.domain.firmware.as_mut().unwrap();
    firmware.kernel_boot.as_mut().unwrap().kernel_args = Some(hostile.to_owned());
    firmware.serial = Some(hostile.to_owned());
    sample.vmi.spec.domain.devices.disks[0].serial = Some(hostile.to_owned());
    sample.links[0].tap = hostile.to_owned();
    let xml = domain(&sample.vmi, &sample.facts, &sample.links).unwrap().to_xml();
    assert!(!xml.contains("<emulator>"), "{xml}");
    assert_eq!(xml.matches("&amp;amp;").count(), 4, "{xml}");
}
