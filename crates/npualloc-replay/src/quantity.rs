//! Sizes as people write them.

/// Units by name, in lower case. As with the allocator's messages K, M, G and T are powers of 1024.
const UNITS: [(&str, f64); 14] = [
    ("", 1.0),
    ("b", 1.0),
    ("k", 1024.0),
    ("kib", 1024.0),
    ("kb", 1e3),
    ("m", 1_048_576.0),
    ("mib", 1_048_576.0),
    ("mb", 1e6),
    ("g", 1_073_741_824.0),
    ("gib", 1_073_741_824.0),
    ("gb", 1e9),
    ("t", 1_099_511_627_776.0),
    ("tib", 1_099_511_627_776.0),
    ("tb", 1e12),
];

/// Bytes from a text like `64GiB`, `61.5 GiB`, `65536M` or `68719476736`.
///
/// # Errors
/// A sentence that names the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("{text:?} ends in no unit of bytes (try 64GiB)"));
    };
    if *scale == 1.0 {
        return number
            .parse()
            .map_err(|_| format!("{text:?} is no number of bytes"));
    }
    match number.parse::<f64>() {
        Ok(value) if value * scale < u64::MAX as f64 => Ok((value * scale) as u64),
        _ => Err(format!("{text:?} is no size (try 64GiB)")),
    }
}

/// A size in GiB with two decimals; below 1 GiB in MiB, below 0.1 MiB in KiB.
pub fn show_size(bytes: u64) -> String {
    let mib = bytes as f64 / 1_048_576.0;
    if bytes > 0 && mib < 0.1 {
        format!("{:.1} KiB", mib * 1024.0)
    } else if mib < 1024.0 {
        format!("{mib:.1} MiB")
    } else {
        format!("{:.2} GiB", mib / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_as_people_write_them() {
        for (text, bytes) in [
            ("64GiB", 64 << 30),
            ("64g", 64 << 30),
            (" 1.5 GiB ", 3 << 29),
            ("64GB", 64_000_000_000),
            ("512m", 512 << 20),
            ("2048", 2048),
            ("0", 0),
            ("1tib", 1 << 40),
            ("1.5TB", 1_500_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "GiB",
            "64 elephants",
            "-1",
            "1.5",
            "1e99g",
            "99999999999999999999",
            "1..2g",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shows_sizes_in_the_unit_that_reads_best() {
        assert_eq!(show_size(3 << 29), "1.50 GiB");
        assert_eq!(show_size(3 << 19), "1.5 MiB");
        assert_eq!(show_size(46 << 10), "46.0 KiB");
        assert_eq!(show_size(0), "0.0 MiB");
    }
}
