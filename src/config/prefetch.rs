//! How much physical memory may be obtained ahead of need.

use super::ConfigError;

/// The variable that says so.
const VARIABLE: &str = "NPUALLOC_PREFETCH_MB";
/// The most it may say, MiB: memory obtained ahead is memory that nobody uses yet.
const MOST_MB: usize = 1024;

/// Bytes from `NPUALLOC_PREFETCH_MB`, a number of MiB from 0 (also when it is not set or empty) to 1024.
///
/// # Errors
/// [`ConfigError::Prefetch`] for anything else.
pub fn prefetch_from_environment(
    get: impl Fn(&str) -> Option<String>,
) -> Result<usize, ConfigError> {
    let value = get(VARIABLE).unwrap_or_default();
    if value.is_empty() {
        return Ok(0);
    }
    match value.parse::<usize>() {
        Ok(number) if number <= MOST_MB => Ok(number << 20),
        _ => Err(ConfigError::Prefetch { value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Option<&str>) -> Result<usize, ConfigError> {
        prefetch_from_environment(|name| {
            assert_eq!(name, "NPUALLOC_PREFETCH_MB");
            value.map(str::to_string)
        })
    }

    #[test]
    fn the_variable_is_a_number_of_mebibytes() {
        assert_eq!(read(None).unwrap(), 0);
        assert_eq!(read(Some("")).unwrap(), 0);
        assert_eq!(read(Some("0")).unwrap(), 0);
        assert_eq!(read(Some("64")).unwrap(), 64 << 20);
        assert_eq!(read(Some("1024")).unwrap(), 1 << 30);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["1025", "-1", "64M", " 64", "18446744073709551616"] {
            let error = read(Some(text)).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("NPUALLOC_PREFETCH_MB should be a number from 0 to 1024, not {text:?}")
            );
        }
    }
}
