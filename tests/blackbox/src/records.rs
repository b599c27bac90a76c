//! Numbered records that a guest has written to a disk, as its command `write-records` makes them. They are judged here and not in the
//! guest, whose processor may be an emulated one: after minutes there are ten thousands of them.

use anyhow::{Context, Result, bail};

/// The size of a record: a line, filled up with blanks.
const SIZE: usize = 512;

/// Judges what the guest sends: how many records there have to be, in a line of its own, and the disk from its beginning. The first block
/// holds none.
pub fn judge(sent: &[u8]) -> Result<u64> {
    let end = sent.iter().position(|byte| *byte == b'\n').context("nothing came from the disk")?;
    let line = String::from_utf8_lossy(&sent[..end]);
    let count: u64 = line.trim().parse().with_context(|| format!("it says {line:?} instead of a number of records"))?;
    let mut blocks = sent[end + 1..].chunks_exact(SIZE).skip(1);
    for number in 1..=count {
        let Some(block) = blocks.next() else { bail!("there are only {} of {count} records", number - 1) };
        if block != record(number) {
            let found = String::from_utf8_lossy(&block[..60]).into_owned();
            bail!("record {number} of {count} is {found:?}");
        }
    }
    Ok(count)
}

/// The number and what follows from it, so that a torn or stale block shows.
fn record(number: u64) -> Vec<u8> {
    let check = number.wrapping_mul(2_654_435_761) % (1 << 32);
    format!("{:<1$}\n", format!("{number} {check}"), SIZE - 1).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(says: &str, numbers: &[u64]) -> Vec<u8> {
        let mut sent = format!("{says}\n").into_bytes();
        sent.extend([0; SIZE]);
        sent.extend(numbers.iter().flat_map(|number| record(*number)));
        sent
    }

    #[test]
    fn every_record_has_to_be_there_and_to_be_whole() {
        // The disk may have more than was acknowledged.
        assert_eq!(judge(&disk("3", &[1, 2, 3, 4])).unwrap(), 3);
        assert!(judge(&disk("3", &[1, 2])).is_err(), "one is missing");
        assert!(judge(&disk("3", &[1, 1, 3])).is_err(), "one is another");
        let mut torn = disk("2", &[1, 2]);
        *torn.last_mut().unwrap() = 0;
        assert!(judge(&torn).is_err(), "one is torn");
        assert!(judge(b"which disk?\n").is_err());
        assert!(judge(b"").is_err());
    }

    #[test]
    fn a_record_is_a_line_with_a_check_sum() {
        let record = String::from_utf8(record(20_000)).unwrap();
        assert_eq!((record.len(), record.trim()), (SIZE, "20000 2919441440"));
    }
}
