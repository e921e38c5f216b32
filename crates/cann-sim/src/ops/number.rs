//! Elements of tensors as numbers. Whole numbers stay exact; all others are
//! computed in double precision and rounded when they are stored.

use super::objects::Scalar;

/// An element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number or a truth.
    Int(i64),
    /// Any other real number.
    Float(f64),
}

impl Number {
    /// As a double.
    pub fn float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    /// As a whole number, rounded towards zero.
    pub fn int(self) -> i64 {
        match self {
            Number::Int(value) => value,
            Number::Float(value) => value as i64,
        }
    }
}

/// True for `aclDataType`s that can be computed with.
pub fn known(dtype: i32) -> bool {
    matches!(dtype, 0..=4 | 6..=12 | 27)
}

/// True for whole numbers and truths.
pub fn whole(dtype: i32) -> bool {
    matches!(dtype, 2..=4 | 6..=10 | 12)
}

fn half_to_float(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from(bits >> 10) & 0x1F;
    let mantissa = u32::from(bits) & 0x3FF;
    let magnitude = match exponent {
        0 => return f32::from_bits(sign) + mantissa as f32 * f32::exp2(-24.0) * sign_of(sign),
        31 => 0x7F80_0000 | mantissa << 13,
        _ => (exponent + 112) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | magnitude)
}

fn sign_of(sign: u32) -> f32 {
    if sign == 0 { 1.0 } else { -1.0 }
}

/// Rounds to the nearest half, ties to even.
fn float_to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return sign | 0x7E00;
    }
    if magnitude >= 0x477F_F000 {
        return sign | 0x7C00;
    }
    if magnitude < 0x3880_0000 {
        let scaled = f32::from_bits(magnitude) * f32::exp2(24.0);
        return sign | scaled.round_ties_even() as u16;
    }
    let rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    sign | ((rounded - 0x3800_0000) >> 13) as u16
}

/// Rounds to the nearest bfloat16, ties to even.
fn float_to_bfloat(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Reads an element.
///
/// # Safety
/// `addr` is the address of a live element of a [`known`] type.
pub unsafe fn load(addr: u64, dtype: i32) -> Number {
    // SAFETY: the caller's promise; elements need not be aligned.
    unsafe {
        match dtype {
            0 => Number::Float(f64::from((addr as *const f32).read_unaligned())),
            1 => Number::Float(f64::from(half_to_float(
                (addr as *const u16).read_unaligned(),
            ))),
            2 => Number::Int(i64::from((addr as *const i8).read())),
            3 => Number::Int(i64::from((addr as *const i32).read_unaligned())),
            4 => Number::Int(i64::from((addr as *const u8).read())),
            12 => Number::Int(i64::from((addr as *const u8).read() != 0)),
            6 => Number::Int(i64::from((addr as *const i16).read_unaligned())),
            7 => Number::Int(i64::from((addr as *const u16).read_unaligned())),
            8 => Number::Int(i64::from((addr as *const u32).read_unaligned())),
            9 | 10 => Number::Int((addr as *const i64).read_unaligned()),
            11 => Number::Float((addr as *const f64).read_unaligned()),
            _ => {
                let bits = u32::from((addr as *const u16).read_unaligned()) << 16;
                Number::Float(f64::from(f32::from_bits(bits)))
            }
        }
    }
}

/// Writes an element.
///
/// # Safety
/// As for [`load`].
pub unsafe fn store(addr: u64, dtype: i32, value: Number) {
    // SAFETY: the caller's promise; elements need not be aligned.
    unsafe {
        match dtype {
            0 => (addr as *mut f32).write_unaligned(value.float() as f32),
            1 => (addr as *mut u16).write_unaligned(float_to_half(value.float() as f32)),
            2 | 4 => (addr as *mut u8).write(value.int() as u8),
            3 | 8 => (addr as *mut u32).write_unaligned(value.int() as u32),
            12 => (addr as *mut u8).write(u8::from(value.float() != 0.0)),
            6 | 7 => (addr as *mut u16).write_unaligned(value.int() as u16),
            9 | 10 => (addr as *mut i64).write_unaligned(value.int()),
            11 => (addr as *mut f64).write_unaligned(value.float()),
            _ => (addr as *mut u16).write_unaligned(float_to_bfloat(value.float() as f32)),
        }
    }
}

/// A scalar's value, if its type can be computed with.
pub fn of_scalar(scalar: &Scalar) -> Option<Number> {
    // SAFETY: the 16 bytes of a scalar hold an element of any known type.
    known(scalar.dtype).then(|| unsafe { load(scalar.bits.as_ptr() as u64, scalar.dtype) })
}

/// Integers with the one function, anything else with the other.
pub fn binary(
    a: Number,
    b: Number,
    int: fn(i64, i64) -> i64,
    float: fn(f64, f64) -> f64,
) -> Number {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Number::Int(int(a, b)),
        _ => Number::Float(float(a.float(), b.float())),
    }
}

/// Sum.
pub fn add(a: Number, b: Number) -> Number {
    binary(a, b, i64::wrapping_add, |a, b| a + b)
}
/// Difference.
pub fn subtract(a: Number, b: Number) -> Number {
    binary(a, b, i64::wrapping_sub, |a, b| a - b)
}
/// The larger, or the one that is not a number.
pub fn maximum(a: Number, b: Number) -> Number {
    if a.float() >= b.float() || a.float().is_nan() {
        a
    } else {
        b
    }
}
/// The smaller, or the one that is not a number.
pub fn minimum(a: Number, b: Number) -> Number {
    if a.float() <= b.float() || a.float().is_nan() {
        a
    } else {
        b
    }
}
/// 1 or 0.
pub fn truth(value: bool) -> Number {
    Number::Int(i64::from(value))
}
/// Whether both are not 0.
pub fn and(a: Number, b: Number) -> Number {
    truth(a.float() != 0.0 && b.float() != 0.0)
}
/// Whether one is not 0.
pub fn or(a: Number, b: Number) -> Number {
    truth(a.float() != 0.0 || b.float() != 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_as_ieee_says() {
        for (value, bits) in [
            (0.0, 0x0000),
            (-0.0, 0x8000),
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65504.0, 0x7BFF),
            (65520.0, 0x7C00),
            (5.960_464_5e-8, 0x0001),
            (0.333_251_95, 0x3555),
            (1.000_488_3, 0x3C00),
            (1.001_464_8, 0x3C02),
        ] {
            assert_eq!(float_to_half(value), bits, "{value}");
        }
        for bits in (0..=0x7BFFu16).chain(0x8000..=0xFBFF) {
            assert_eq!(
                float_to_half(half_to_float(bits)),
                bits,
                "{bits:#x} there and back"
            );
        }
    }

    #[test]
    fn bfloats_round_to_even() {
        assert_eq!(float_to_bfloat(1.0), 0x3F80);
        assert_eq!(float_to_bfloat(f32::from_bits(0x3F80_8000)), 0x3F80);
        assert_eq!(float_to_bfloat(f32::from_bits(0x3F81_8000)), 0x3F82);
    }
}
