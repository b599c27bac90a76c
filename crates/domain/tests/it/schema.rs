//! libvirt's own schema accepts what we write.

use std::process::{Command, Stdio};

use ferrovirt_domain::domain;

use crate::samples;

/// Fails with the validator's words when a document is not a valid domain.
pub(crate) fn assert_valid(name: &str, xml: &str) {
    let file = tempfile::Builder::new().suffix(".xml").tempfile().unwrap();
    std::fs::write(file.path(), xml).unwrap();
    let output = Command::new("virt-xml-validate")
        .arg(file.path())
        .arg("domain")
        .stdin(Stdio::null())
        .output()
        .expect("virt-xml-validate is installed");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {said}\n{xml}");
}

#[test]
fn every_sample_is_valid() {
    // Samples for newer versions use what the installed schema may not know.
    for sample in samples::all().iter().filter(|sample| !sample.name.starts_with("newer")) {
        let domain = domain(&sample.vmi, &sample.facts, &sample.links).unwrap();
        assert_valid(&sample.name, &domain.to_xml());
    }
}
