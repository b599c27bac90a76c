//! Certificates whose subject has several organisations, that is, users with several groups.
//!
//! rcgen keeps one value per attribute of a name. So a certificate is first made with the common name alone; then its
//! subject is written anew and the result signed again. Everything else of the certificate stays as rcgen made it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, SigningKey as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// Object identifiers 2.5.4.3 and 2.5.4.10, with tag and length.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];

/// The same certificate (DER) for user `name` in `groups`, signed by `authority`, as PEM. `None` if `certificate` is
/// none, which cannot happen for one that was just made.
pub(super) fn rename(certificate: &[u8], name: &str, groups: &[&str], authority: &KeyPair) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let to_be_signed: &[u8] = parsed.tbs_certificate.as_ref();
    let content = content_of(to_be_signed)?;
    let old_subject = parsed.tbs_certificate.subject.as_raw();
    let start = (old_subject.as_ptr() as usize).checked_sub(content.as_ptr() as usize)?;
    let (before, after) = (content.get(..start)?, content.get(start + old_subject.len()..)?);

    let to_be_signed = element(SEQUENCE, &[before, &subject(name, groups), after].concat());
    let mut signature = vec![0]; // no unused bits
    signature.extend(authority.sign(&to_be_signed).ok()?);
    let algorithm = parsed_algorithm(certificate)?;
    let der = element(SEQUENCE, &[&to_be_signed, algorithm, &element(BIT_STRING, &signature)].concat());
    Some(pem(&der))
}

fn subject(name: &str, groups: &[&str]) -> Vec<u8> {
    let attribute = |kind: &[u8], value: &str| {
        let value = element(UTF8_STRING, value.as_bytes());
        element(SET, &element(SEQUENCE, &[kind, &value].concat()))
    };
    let mut attributes: Vec<u8> = groups.iter().flat_map(|group| attribute(&ORGANIZATION, group)).collect();
    attributes.extend(attribute(&COMMON_NAME, name));
    element(SEQUENCE, &attributes)
}

/// The second of the three parts of a certificate: what it is signed with.
fn parsed_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let parts = content_of(certificate)?;
    let first = element_len(parts)?;
    let rest = parts.get(first..)?;
    rest.get(..element_len(rest)?)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = vec![tag];
    match significant {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        // At most eight bytes, so the count fits next to the marker.
        long => out.extend([0x80 | u8::try_from(long.len()).unwrap_or(0)].iter().chain(long)),
    }
    out.extend_from_slice(content);
    out
}

/// Lengths of header and content of the element that `der` starts with.
fn header(der: &[u8]) -> Option<(usize, usize)> {
    let first = *der.get(1)?;
    if first < 0x80 {
        return Some((2, usize::from(first)));
    }
    let count = usize::from(first & 0x7f);
    let bytes = der.get(2..2 + count).filter(|_| count <= 4)?;
    Some((2 + count, bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))))
}

fn element_len(der: &[u8]) -> Option<usize> {
    header(der).map(|(header, content)| header + content)
}

fn content_of(der: &[u8]) -> Option<&[u8]> {
    let (header, content) = header(der)?;
    der.get(header..header + content)
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_and_read_alike() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; length];
            let der = element(SEQUENCE, &content);
            assert_eq!(element_len(&der), Some(der.len()), "{length}");
            assert_eq!(content_of(&der), Some(&content[..]), "{length}");
        }
        for broken in [&[][..], &[0x30], &[0x30, 0x82, 1], &[0x30, 0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1]] {
            assert_eq!(header(broken), None);
        }
        assert_eq!(content_of(&[0x30, 5, 1]), None, "cut off");
    }

    #[test]
    fn nonsense_is_no_certificate() {
        assert_eq!(rename(b"nonsense", "a", &[], &KeyPair::generate().unwrap()), None);
    }
}
