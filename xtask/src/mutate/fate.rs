//! What the output and the end of a test run tell of a fault.

/// What became of a fault, or of one suite with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// This test failed.
    Found(String),
    /// A suite was stopped.
    Endless,
    /// Every test passed.
    Survived,
}

impl Fate {
    /// For the table.
    pub fn text(&self) -> &str {
        match self {
            Self::Found(by) => by,
            Self::Endless => "a test that does not end",
            Self::Survived => "SURVIVED",
        }
    }
}

/// What a run of `timeout … cargo test` said.
#[derive(Default)]
pub struct Said {
    /// The first test that failed.
    test: Option<String>,
    /// Cargo ran a test program, and it failed.
    failed: bool,
    /// That program was killed by another: by the system, for want of memory.
    killed: bool,
}

impl Said {
    /// Takes a line of its output.
    pub fn line(&mut self, line: &str) {
        let rest = line.strip_prefix("test ");
        if let Some(name) = rest.and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.test.get_or_insert(name.to_owned());
        }
        self.failed |= line.starts_with("error: test failed");
        self.killed |= line.contains("(signal: 9, SIGKILL");
    }

    /// What a run that ended with `code` shows; `None` where it shows nothing of the fault.
    pub fn fate(self, code: Option<i32>) -> Option<Fate> {
        match code {
            Some(0) => Some(Fate::Survived),
            // Stopped by `timeout`, the second way where it did not listen.
            Some(124 | 137) => Some(Fate::Endless),
            Some(101) if self.failed && !self.killed => {
                let ended = || "a test program that ended".to_owned();
                Some(Fate::Found(self.test.unwrap_or_else(ended)))
            }
            _ => None,
        }
    }
}

/// What a run of `timeout … pytest` or `timeout … ctest` said.
#[derive(Default)]
pub struct SaidByTests {
    /// The first test that failed.
    test: Option<String>,
}

impl SaidByTests {
    /// Takes a line of its output.
    pub fn line(&mut self, line: &str) {
        let of_pytest = line.strip_prefix("FAILED ").or(line.strip_prefix("ERROR "));
        // "\t  3 - Name (Failed)", also "(SEGFAULT)".
        let of_ctest = line
            .strip_prefix('\t')
            .and_then(|line| line.split_once(" - "))
            .map(|(_, rest)| rest);
        if let Some(name) = of_pytest
            .or(of_ctest)
            .and_then(|rest| rest.split(' ').next())
        {
            self.test.get_or_insert(name.to_owned());
        }
    }

    /// What a run that ended with `code` shows; `None` where it shows nothing of the fault.
    pub fn fate(self, code: Option<i32>) -> Option<Fate> {
        match (code, self.test) {
            (Some(0), None) => Some(Fate::Survived),
            (Some(124 | 137), _) => Some(Fate::Endless),
            // Of pytest, and of ctest.
            (Some(1 | 8), Some(test)) => Some(Fate::Found(test)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run with these lines and this end shows.
    fn fate(lines: &[&str], code: Option<i32>) -> Option<Fate> {
        let mut said = Said::default();
        lines.iter().for_each(|line| said.line(line));
        said.fate(code)
    }

    #[test]
    fn only_a_test_that_fails_or_does_not_end_finds_a_fault() {
        let failed = "error: test failed, to rerun pass `--test programs`";
        let found = |by: &str| Some(Fate::Found(by.to_owned()));
        assert_eq!(fate(&["test a ... ok"], Some(0)), Some(Fate::Survived));
        let lines = [
            "test a ... ok",
            "test b ... FAILED",
            "test c ... FAILED",
            failed,
        ];
        assert_eq!(fate(&lines, Some(101)), found("b"));
        let crash =
            "  process didn't exit successfully: `x` (signal: 6, SIGABRT: process abort signal)";
        assert_eq!(
            fate(&[failed, crash], Some(101)),
            found("a test program that ended")
        );
        assert_eq!(fate(&["test a ... ok"], Some(124)), Some(Fate::Endless));
    }

    #[test]
    fn a_run_that_broke_down_finds_nothing() {
        let failed = "error: test failed, to rerun pass `--test programs`";
        let full = "error: failed to write `x`: No space left on device (os error 28)";
        assert_eq!(fate(&[full], Some(101)), None);
        let killed = "  process didn't exit successfully: `x` (signal: 9, SIGKILL: kill)";
        assert_eq!(fate(&[failed, killed], Some(101)), None);
        assert_eq!(fate(&[], Some(127)), None);
        assert_eq!(fate(&[], None), None);
    }

    /// What a run of pytest or ctest with these lines and this end shows.
    fn fate_of_tests(lines: &[&str], code: Option<i32>) -> Option<Fate> {
        let mut said = SaidByTests::default();
        lines.iter().for_each(|line| said.line(line));
        said.fate(code)
    }

    #[test]
    fn tests_of_pytest_and_ctest_find_faults_too() {
        let found = |by: &str| Some(Fate::Found(by.to_owned()));
        let passed = "===== 7 passed in 9.92s =====";
        assert_eq!(fate_of_tests(&[passed], Some(0)), Some(Fate::Survived));
        let failed = "FAILED tests/python/test_raw.py::test_a[x] - AssertionError: 1";
        assert_eq!(
            fate_of_tests(&[failed], Some(1)),
            found("tests/python/test_raw.py::test_a[x]")
        );
        let lines = [
            "The following tests FAILED:",
            "\t  3 - DeviceAllocator.Copies (Failed)",
        ];
        assert_eq!(
            fate_of_tests(&lines, Some(8)),
            found("DeviceAllocator.Copies")
        );
        assert_eq!(fate_of_tests(&[], Some(124)), Some(Fate::Endless));
        // None collected, not to be started, out of memory.
        for code in [Some(5), Some(1), Some(127), None] {
            assert_eq!(fate_of_tests(&[], code), None);
        }
    }
}
