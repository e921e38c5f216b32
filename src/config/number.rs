//! Numbers as C++ reads them (`std::stoull`, `std::stoi`, `std::stod`): the longest prefix that is
//! a number counts, what follows is ignored. Tokens hold no white space.

use super::ConfigError;

fn not_a_number(conversion: &'static str, token: &str) -> ConfigError {
    ConfigError::NotANumber {
        conversion,
        token: token.to_string(),
    }
}

fn out_of_range(conversion: &'static str, token: &str) -> ConfigError {
    ConfigError::NumberOutOfRange {
        conversion,
        token: token.to_string(),
    }
}

/// Splits a leading sign off.
fn sign(token: &str) -> (bool, &str) {
    match token.as_bytes().first() {
        Some(b'-') => (true, &token[1..]),
        Some(b'+') => (false, &token[1..]),
        _ => (false, token),
    }
}

/// `std::stoull`: decimal; a minus sign negates modulo 2^64.
pub(super) fn unsigned(token: &str) -> Result<usize, ConfigError> {
    let (negative, rest) = sign(token);
    let mut value = None;
    for digit in rest.bytes().take_while(u8::is_ascii_digit) {
        value = Some(
            value
                .unwrap_or(0usize)
                .checked_mul(10)
                .and_then(|v| v.checked_add(usize::from(digit - b'0')))
                .ok_or_else(|| out_of_range("stoull", token))?,
        );
    }
    let value = value.ok_or_else(|| not_a_number("stoull", token))?;
    Ok(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// `std::stoi` of a token that holds only digits.
pub(super) fn int_of_digits(token: &str) -> Result<usize, ConfigError> {
    debug_assert!(!token.is_empty() && token.bytes().all(|b| b.is_ascii_digit()));
    token
        .parse::<i32>()
        .ok()
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| out_of_range("stoi", token))
}

/// `std::stod`: decimal or hexadecimal floating point, `inf`, `infinity`, `nan`. Values that
/// overflow, or that are too small for a normal number and not exact without, are out of range.
pub(super) fn double(token: &str) -> Result<f64, ConfigError> {
    let (negative, rest) = sign(token);
    let lower = rest.to_ascii_lowercase();
    let magnitude = if lower.starts_with("inf") {
        f64::INFINITY
    } else if lower.starts_with("nan") {
        f64::NAN
    } else {
        let hex = lower.strip_prefix("0x").and_then(hexadecimal);
        let (value, too_small) = match hex {
            Some(read) => read,
            None => decimal(&lower).ok_or_else(|| not_a_number("stod", token))?,
        };
        if value.is_infinite() || too_small {
            return Err(out_of_range("stod", token));
        }
        value
    };
    Ok(if negative { -magnitude } else { magnitude })
}

/// Length of the mantissa (digits with at most one point), and whether it has a digit.
fn mantissa(text: &str, is_digit: impl Fn(&u8) -> bool) -> (usize, bool) {
    let (mut point, mut digits) = (false, false);
    for (index, byte) in text.bytes().enumerate() {
        if is_digit(&byte) {
            digits = true;
        } else if byte == b'.' && !point {
            point = true;
        } else {
            return (index, digits);
        }
    }
    (text.len(), digits)
}

/// The exponent that follows the mantissa, as text with its sign; `None` when it has no digit.
fn exponent(text: &str, mark: char) -> Option<&str> {
    let rest = text.strip_prefix(mark)?;
    let (_, digits) = sign(rest);
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    (count > 0).then(|| &rest[..rest.len() - digits.len() + count])
}

/// The value of the decimal prefix, and whether it is too small. Below normal numbers only zero is exact: others
/// take hundreds of digits.
fn decimal(text: &str) -> Option<(f64, bool)> {
    let (length, digits) = mantissa(text, u8::is_ascii_digit);
    if !digits {
        return None;
    }
    let exponent = exponent(&text[length..], 'e').map_or(0, |e| e.len() + 1);
    let is_zero = text[..length].bytes().all(|b| matches!(b, b'0' | b'.'));
    let value: f64 = text[..length + exponent].parse().ok()?;
    Some((value, !is_zero && value < f64::MIN_POSITIVE))
}

/// The value of the hexadecimal prefix (after `0x`), and whether it is too small.
fn hexadecimal(text: &str) -> Option<(f64, bool)> {
    // Beyond this any exponent overflows or vanishes, whatever the mantissa's length.
    const FAR: i64 = 1 << 40;
    // The exponents of the first bit of the least normal number, and of the last bit of any.
    const LEAST_NORMAL: i64 = f64::MIN_EXP as i64 - 1;
    const LAST_BIT: i64 = LEAST_NORMAL - (f64::MANTISSA_DIGITS as i64 - 1);
    let (length, digits) = mantissa(text, u8::is_ascii_hexdigit);
    if !digits {
        return None;
    }
    let (mut value, mut power, mut after_point) = (0u64, 0i64, false);
    for byte in text[..length].bytes() {
        let Some(digit) = char::from(byte).to_digit(16) else {
            after_point = true;
            continue;
        };
        if value >> 60 == 0 {
            value = value << 4 | u64::from(digit);
            power -= if after_point { 4 } else { 0 };
        } else {
            // Past 60 significant bits a digit only tells whether the value is inexact.
            value |= u64::from(digit != 0);
            power += if after_point { 0 } else { 4 };
        }
    }
    let exponent = exponent(&text[length..], 'p').map_or(0, |e| {
        let limit = if e.starts_with('-') { -FAR } else { FAR };
        e.parse::<i64>().map_or(limit, |e| e.clamp(-FAR, FAR))
    });
    let mut power = power + exponent;
    let mut result = value as f64;
    // As the C library on x86-64 has it: below normal numbers is what still is when rounded to as many bits as they have.
    let first_bit = (result.to_bits() >> 52) as i64 - 1023 + power;
    let last_bit = i64::from(value.trailing_zeros()) + power;
    let too_small = value != 0 && first_bit < LEAST_NORMAL && last_bit < LAST_BIT;
    while power != 0 && result != 0.0 && result.is_finite() {
        let step = power.clamp(-1000, 1000);
        result *= 2f64.powi(step as i32);
        power -= step;
    }
    Some((result, too_small))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected values: glibc 2.36, through the stock parser where a key allows them.
    #[test]
    fn doubles_as_c_reads_them() {
        for (token, value) in [
            ("0.5", 0.5),
            ("+.5e", 0.5),
            ("5e-1x", 0.5),
            ("5.", 5.0),
            ("1e2", 100.0),
            ("0x.8", 0.5),
            ("0x1.8p-1z", 0.75),
            ("0x", 0.0),
            ("0xg", 0.0),
            ("0x1p", 1.0),
            ("-0.25", -0.25),
            ("0e99999999999999999999", 0.0),
            ("0x0p-9999", 0.0),
            ("0x1p-1030", f64::from_bits(1 << 44)),
            ("0x1p-1040", f64::from_bits(1 << 34)),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1.8p-1073", f64::from_bits(3)),
            ("0x10000000000000000000000000000p-1186", f64::from_bits(1)),
            ("0x0.00000000000000000001p-990", f64::from_bits(16)),
            ("0x0.fffffffffffffp-1022", f64::from_bits((1 << 52) - 1)),
            // Rounds up to a normal number.
            ("0x0.fffffffffffffcp-1022", f64::MIN_POSITIVE),
            ("INFinity", f64::INFINITY),
        ] {
            assert_eq!(double(token).unwrap(), value, "{token}");
        }
        assert!(double("nan(7)").unwrap().is_nan());
        for token in ["", "x", ".", "+", "-x", "e5", "+-1", "٣"] {
            assert!(
                matches!(double(token), Err(ConfigError::NotANumber { .. })),
                "{token}"
            );
        }
        for token in [
            "1e400",
            "-1e400",
            "1e-400",
            "1e-310",
            "0x1p9999999999999999999",
            "0x1p-5000",
            "0x1p-1075",
            "0x1.8p-1074",
            "0x1.00000000000001p-1040",
            "0x0.fffffffffffff8p-1022",
            "0x0.fffffffffffffbp-1022",
            "0x10000000000000000000000000001p-1186",
        ] {
            assert!(
                matches!(double(token), Err(ConfigError::NumberOutOfRange { .. })),
                "{token}"
            );
        }
    }

    #[test]
    fn unsigned_numbers_as_c_reads_them() {
        assert_eq!(unsigned("30x").unwrap(), 30);
        assert_eq!(unsigned("+30").unwrap(), 30);
        assert_eq!(unsigned("-1").unwrap(), usize::MAX);
        assert_eq!(unsigned("0x30").unwrap(), 0);
        assert_eq!(unsigned("18446744073709551615").unwrap(), usize::MAX);
        for token in ["", "-", "+-3", "x"] {
            assert!(
                matches!(unsigned(token), Err(ConfigError::NotANumber { .. })),
                "{token}"
            );
        }
        for token in ["18446744073709551616", "-18446744073709551616"] {
            let error = unsigned(token);
            assert!(
                matches!(error, Err(ConfigError::NumberOutOfRange { .. })),
                "{token}"
            );
        }
    }
}
