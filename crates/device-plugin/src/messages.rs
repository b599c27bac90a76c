//! The messages of `v1beta1`, as far as they are used. Field numbers are those of Kubernetes' `deviceplugin/v1beta1/api.proto`.
//!
//! Writing is exact. Reading skips what it does not know, so that a kubelet may say more than we understand.

use crate::Device;

/// The version of the API.
const VERSION: &str = "v1beta1";

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no protobuf message")]
pub(crate) struct Malformed;

/// A field whose value has a length: text or a message.
fn put(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    put_number(out, field << 3 | 2);
    put_number(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The fields of a message that have a length, with their numbers.
fn fields(mut rest: &[u8]) -> Result<Vec<(u64, &[u8])>, Malformed> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = take_number(&mut rest)?;
        match key & 7 {
            0 => drop(take_number(&mut rest)?),
            1 => drop(take(&mut rest, 8)?),
            2 => {
                let length = usize::try_from(take_number(&mut rest)?).map_err(|_| Malformed)?;
                found.push((key >> 3, take(&mut rest, length)?));
            }
            5 => drop(take(&mut rest, 4)?),
            _ => return Err(Malformed),
        }
    }
    Ok(found)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

fn take_number(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take(rest, 1)? else { return Err(Malformed) };
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

/// `RegisterRequest`: the plugin behind the socket `endpoint` has this resource.
pub(crate) fn register_request(endpoint: &str, resource: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, VERSION.as_bytes());
    put(&mut out, 2, endpoint.as_bytes());
    put(&mut out, 3, resource.as_bytes());
    out
}

/// `ListAndWatchResponse`: so many devices, which can all be used or not.
pub(crate) fn devices(device: &Device, count: usize, healthy: bool) -> Vec<u8> {
    let health = if healthy { "Healthy" } else { "Unhealthy" };
    let mut out = Vec::new();
    for number in 0..count {
        let mut one = Vec::new();
        put(&mut one, 1, format!("{}{number}", device.name).as_bytes());
        put(&mut one, 2, health.as_bytes());
        put(&mut out, 1, &one);
    }
    out
}

/// How many containers an `AllocateRequest` is about.
pub(crate) fn containers(allocate_request: &[u8]) -> Result<usize, Malformed> {
    Ok(fields(allocate_request)?.into_iter().filter(|(number, _)| *number == 1).count())
}

/// `AllocateResponse`: each container gets the device's file, to read and to write.
pub(crate) fn allocated(device: &Device, containers: usize) -> Vec<u8> {
    let path = device.path.to_string_lossy();
    let mut file = Vec::new();
    put(&mut file, 1, path.as_bytes());
    put(&mut file, 2, path.as_bytes());
    put(&mut file, 3, b"rw");
    let mut container = Vec::new();
    put(&mut container, 3, &file);
    let mut out = Vec::new();
    for _ in 0..containers {
        put(&mut out, 1, &container);
    }
    out
}

/// What a kubelet reads and writes, for one that is played in tests.
#[cfg(test)]
pub(crate) mod as_kubelet {
    use super::{Malformed, fields, put};

    /// The text of a field.
    pub(crate) fn text(message: &[u8], wanted: u64) -> Result<String, Malformed> {
        let found = fields(message)?.into_iter().find(|(number, _)| *number == wanted);
        String::from_utf8(found.map(|(_, value)| value.to_vec()).unwrap_or_default()).map_err(|_| Malformed)
    }

    /// All messages of a repeated field.
    pub(crate) fn all(message: &[u8], wanted: u64) -> Result<Vec<Vec<u8>>, Malformed> {
        let found = fields(message)?.into_iter().filter(|(number, _)| *number == wanted);
        Ok(found.map(|(_, value)| value.to_vec()).collect())
    }

    /// An `AllocateRequest` with one device for each container.
    pub(crate) fn allocate_request(devices: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for device in devices {
            let mut container = Vec::new();
            put(&mut container, 1, device.as_bytes());
            put(&mut out, 1, &container);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_registration_is_what_protoc_makes_of_it() {
        // printf 'version: "v1beta1" endpoint: "a.sock" resource_name: "b/c"' | protoc --encode=v1beta1.RegisterRequest
        assert_eq!(register_request("a.sock", "b/c"), b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x03b/c");
    }

    #[test]
    fn every_container_gets_the_file() {
        let kvm = Device::new("kvm", "/dev/kvm");
        let answer = allocated(&kvm, 2);
        let containers = as_kubelet::all(&answer, 1).unwrap();
        assert_eq!(containers.len(), 2);
        let file = &as_kubelet::all(&containers[1], 3).unwrap()[0];
        let parts = [1, 2, 3].map(|number| as_kubelet::text(file, number).unwrap());
        assert_eq!(parts, ["/dev/kvm", "/dev/kvm", "rw"]);
    }

    #[test]
    fn what_is_not_known_is_skipped() {
        let mut request = vec![0x10, 0xff, 0x01, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4];
        request.extend(as_kubelet::allocate_request(&["kvm1", "kvm2"]));
        assert_eq!(containers(&request), Ok(2));
        assert_eq!(containers(&[0x0a, 200, 1]), Err(Malformed), "it ends too early");
        assert_eq!(containers(&[0x0b]), Err(Malformed), "groups are history");
    }

    proptest! {
        #[test]
        fn numbers_survive(number: u64) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            prop_assert_eq!(take_number(&mut bytes.as_slice()), Ok(number));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = containers(&bytes);
        }
    }
}
