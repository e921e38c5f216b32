//! What is read, and what is refused.

use super::*;

/// `pickle.dumps({"a": [1, -2, 2**40, 1.5, None, True], "b": ("x", "x")}, 4)`, made by CPython 3.11.
const GOOD: &[u8] =
    b"\x80\x04\x95\x39\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xff\x8a\
    \x06\0\0\0\0\0\x01G?\xf8\0\0\0\0\0\0N\x88e\x8c\x01b\x94\x8c\x01x\x94h\x04\x86\x94u.";

#[test]
fn plain_data_are_read() {
    let (heap, top) = read(GOOD).expect("a good pickle");
    let list = heap.list(heap.get(top, "a").expect("a")).expect("a list");
    assert_eq!(
        list,
        [
            Value::Int(1),
            Value::Int(-2),
            Value::Int(1 << 40),
            Value::Float(1.5),
            Value::None,
            Value::Bool(true)
        ]
    );
    let pair = heap.list(heap.get(top, "b").expect("b")).expect("a tuple");
    assert_eq!((heap.text(pair[0]), pair[0]), (Some("x"), pair[1]));
}

#[test]
fn nothing_is_found_or_called() {
    // os.system("true"), as pickle.dumps writes it in protocols 2 and 4.
    let old = b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.";
    let new = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.";
    for (bytes, wanted) in [(old.as_slice(), "GLOBAL"), (new, "STACK_GLOBAL")] {
        match read(bytes) {
            Err(PickleError::Code { name, .. }) => assert_eq!(name, wanted),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn any_damage_is_an_error_or_other_data_but_no_panic() {
    for end in 0..GOOD.len() {
        assert!(read(&GOOD[..end]).is_err(), "{end}");
    }
    for at in 0..GOOD.len() {
        for byte in 0..=255 {
            let mut bytes = GOOD.to_vec();
            bytes[at] = byte;
            let _ = read(&bytes);
        }
    }
    assert_eq!(read(b"hello").unwrap_err(), PickleError::Foreign);
    // A text of 2^63 bytes, a memo of 2^32 places.
    let long = b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.";
    assert_eq!(
        read(long).unwrap_err(),
        PickleError::Truncated { at: long.len() }
    );
    assert!(matches!(
        read(b"\x80\x04Nr\xff\xff\xff\xff."),
        Err(PickleError::Damaged { .. })
    ));
}

#[test]
fn integers_have_64_bits() {
    let number = |bytes: &[u8]| {
        let length = [0x8a, bytes.len() as u8];
        let pickle = [b"\x80\x04", length.as_slice(), bytes, b"."].concat();
        read(&pickle).map(|(_, top)| top)
    };
    let full = [0xff; 8];
    assert_eq!(number(&full), Ok(Value::Int(-1)));
    // Unsigned, a ninth byte says that it is not negative.
    assert_eq!(number(&[&full[..], &[0]].concat()), Ok(Value::Int(-1)));
    for more in [&[1][..], &[0xff], &[0, 0]] {
        let refused = number(&[&full[..], more].concat());
        assert!(
            matches!(refused, Err(PickleError::Damaged { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn values_and_marks_have_a_limit_together() {
    for opcodes in [b"(".as_slice(), b"N", b"(N"] {
        let mut bytes = b"\x80\x04".to_vec();
        bytes.extend(opcodes.repeat(MAX_VALUES + 1));
        assert_eq!(read(&bytes).unwrap_err(), PickleError::TooLarge);
    }
}

#[test]
fn dictionaries_of_any_length_are_not_searched() {
    let dict = |pairs: usize| {
        let mut bytes = b"\x80\x04}(".to_vec();
        bytes.extend(b"\x8c\x01aK\x01".repeat(pairs));
        bytes.extend(b"u.");
        let (heap, top) = read(&bytes).expect("a good pickle");
        heap.get(top, "a")
    };
    assert_eq!(dict(20), Some(Value::Int(1)));
    assert_eq!(dict(1000), None);
}

#[test]
fn a_list_may_contain_itself() {
    let (heap, top) = read(b"\x80\x04]\x94h\0a.").expect("a good pickle");
    assert_eq!(heap.list(top), Some([top].as_slice()));
}
