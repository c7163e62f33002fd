//! The progress pipe: lines `N[/TOTAL] [message]` that a tool writes to its descriptor 3.

/// Longest line that is looked at, in bytes; a longer one is skipped as a whole.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// One progress report of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Progress {
    pub(crate) progress: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: Option<String>,
}

impl Progress {
    /// Reads one line; `None` for a line that is no progress.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        let (numbers, message) = match line.split_once(char::is_whitespace) {
            Some((numbers, message)) => (numbers, message.trim_start()),
            None => (line, ""),
        };
        let (progress, total) = match numbers.split_once('/') {
            Some((progress, total)) => (progress, Some(finite(total)?)),
            None => (numbers, None),
        };
        let message = (!message.is_empty()).then(|| message.to_owned());
        Some(Self { progress: finite(progress)?, total, message })
    }
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Cuts lines out of the bytes of a progress pipe.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
    skipping: bool,
}

impl Lines {
    /// Takes the next bytes and hands every progress they complete to `found`.
    pub(crate) fn push(&mut self, bytes: &[u8], mut found: impl FnMut(Progress)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            if self.line.len() + piece.len() > LINE_BYTES_MAX {
                self.skipping = true;
                self.line.clear();
            }
            if !self.skipping {
                self.line.extend_from_slice(piece);
            }
            if ends {
                self.finish(&mut found);
            }
        }
    }

    /// The pipe is over: the last line counts without its end, too.
    pub(crate) fn finish(&mut self, mut found: impl FnMut(Progress)) {
        let skipped = std::mem::take(&mut self.skipping);
        if let (false, Some(progress)) = (skipped, Progress::parse(&self.line)) {
            found(progress);
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<(f64, Option<f64>, Option<String>)> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        let mut take = |p: Progress| found.push((p.progress, p.total, p.message));
        for chunk in chunks {
            lines.push(chunk, &mut take);
        }
        lines.finish(&mut take);
        found
    }

    #[test]
    fn forms_of_a_line() {
        for (line, want) in [
            ("1", Some((1.0, None, None))),
            ("0.5", Some((0.5, None, None))),
            ("3/10", Some((3.0, Some(10.0), None))),
            (" 3/10  two words \r", Some((3.0, Some(10.0), Some("two words")))),
            ("3 / 10", Some((3.0, None, Some("/ 10")))),
            ("", None),
            ("abc", None),
            ("inf", None),
            ("nan/3", None),
            ("1/inf", None),
            ("1/", None),
            ("1e999", None),
        ] {
            let want: Vec<_> = want
                .map(|(n, t, m): (f64, _, Option<&str>)| (n, t, m.map(str::to_owned)))
                .into_iter()
                .collect();
            assert_eq!(lines(&[line.as_bytes()]), want, "{line:?}");
        }
    }

    #[test]
    fn lines_are_cut_anywhere_and_long_ones_skipped() {
        assert_eq!(lines(&[b"1/", b"2 a", b"b\n", b"3\n4"]).len(), 3);
        let long = vec![b'1'; 10_000_000];
        assert_eq!(lines(&[&long, b"\n7\n"]), [(7.0, None, None)]);
        let mut just = vec![b' '; LINE_BYTES_MAX - 2];
        just.extend_from_slice(b"5\n");
        assert_eq!(lines(&[&just]), [(5.0, None, None)]);
        just.insert(0, b' ');
        assert_eq!(lines(&[&just]), []);
    }
}
