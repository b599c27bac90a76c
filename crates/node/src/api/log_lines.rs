//! A container's output as its monitor writes it, and what of it a reader wants to see. No IO.
//!
//! A line is `<time> <stdout|stderr> <F|P> <text>`; `P` marks a part of a line that goes on.

use jiff::Timestamp;

/// What a reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Only so many lines of the end.
    pub tail: Option<usize>,
    /// Only what is not older.
    pub since: Option<Timestamp>,
    /// With the time in front of each line.
    pub timestamps: bool,
    /// Only `stdout` or `stderr`.
    pub stream: Option<String>,
}

/// Turns lines of the file into what a reader sees.
#[derive(Debug, Clone)]
pub struct Filter {
    options: Options,
    /// The last line was not finished, so the next one gets no time in front.
    goes_on: bool,
}

impl Filter {
    /// A filter.
    pub fn new(options: Options) -> Self {
        Self { options, goes_on: false }
    }

    /// What the reader sees of one line of the file; empty: nothing.
    pub fn line(&mut self, line: &[u8]) -> Vec<u8> {
        let mut parts = line.splitn(4, |&byte| byte == b' ');
        let (Some(time), Some(stream), Some(tag), Some(text)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Vec::new();
        };
        let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
        let too_old = self.options.since.is_some_and(|since| time.is_some_and(|time| time < since));
        let other = self.options.stream.as_deref().is_some_and(|wanted| wanted.as_bytes() != stream);
        if too_old || other {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(text.len() + 32);
        if let Some(time) = time.filter(|_| self.options.timestamps && !self.goes_on) {
            out.extend_from_slice(format!("{time:.9} ").as_bytes());
        }
        out.extend_from_slice(text);
        self.goes_on = tag == b"P";
        if !self.goes_on {
            out.push(b'\n');
        }
        out
    }

    /// Everything of a file that is there already, and how many of its bytes were whole lines.
    pub fn whole(&mut self, file: &[u8]) -> (Vec<u8>, usize) {
        let end = file.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let mut open = false;
        for line in file[..end].split_inclusive(|&byte| byte == b'\n') {
            let seen = self.line(line.strip_suffix(b"\n").unwrap_or(line));
            if seen.is_empty() {
                continue;
            }
            match lines.last_mut().filter(|_| open) {
                Some(last) => last.extend_from_slice(&seen),
                None => lines.push(seen),
            }
            open = self.goes_on;
        }
        let skip = self.options.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
        (lines[skip..].concat(), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"2026-01-01T00:00:00.000000001+00:00 stdout F one\n\
        2026-01-01T00:00:01.5+00:00 stderr P tw\n\
        2026-01-01T00:00:01.6+00:00 stderr F o\n\
        2026-01-01T00:00:02+00:00 stdout F \n\
        2026-01-01T00:00:03+00:00 stdout F thr";

    fn seen(options: Options) -> String {
        String::from_utf8(Filter::new(options).whole(FILE).0).unwrap()
    }

    #[test]
    fn parts_are_joined_and_an_unfinished_line_waits() {
        assert_eq!(seen(Options::default()), "one\ntwo\n\n");
        assert_eq!(Filter::new(Options::default()).whole(FILE).1, FILE.len() - 38);
    }

    #[test]
    fn readers_choose() {
        assert_eq!(seen(Options { tail: Some(2), ..Options::default() }), "two\n\n");
        assert_eq!(seen(Options { tail: Some(0), ..Options::default() }), "");
        let since = Some("2026-01-01T00:00:01Z".parse().unwrap());
        assert_eq!(seen(Options { since, ..Options::default() }), "two\n\n");
        assert_eq!(seen(Options { stream: Some("stderr".into()), ..Options::default() }), "two\n");
        let stamped = seen(Options { timestamps: true, tail: Some(2), ..Options::default() });
        assert_eq!(stamped, "2026-01-01T00:00:01.500000000Z two\n2026-01-01T00:00:02.000000000Z \n");
    }
}
