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
