//! Reports whether a program needs a loader.

const PT_INTERP: u32 = 3;

/// Returns the loader of a 64-bit little-endian ELF file; `None` for a static one.
pub fn interpreter(file: &[u8]) -> Option<String> {
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "a 64-bit little-endian ELF file");
    let number = |at: usize, length: usize| {
        let bytes = file[at..at + length].iter().rev();
        bytes.fold(0, |number: usize, byte| number << 8 | usize::from(*byte))
    };
    let (headers, size, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    assert!(count > 0, "no program headers");
    let header = (0..count)
        .map(|index| headers + index * size)
        .find(|at| number(*at, 4) == PT_INTERP as usize)?;
    let (begin, length) = (number(header + 0x08, 8), number(header + 0x20, 8));
    Some(
        String::from_utf8_lossy(&file[begin..begin + length])
            .trim_end_matches('\0')
            .to_owned(),
    )
}

#[test]
fn a_program_of_this_machine_has_an_interpreter() {
    let own = std::fs::read("/proc/self/exe").unwrap();
    assert!(
        interpreter(&own).unwrap().contains("ld-"),
        "this test is linked dynamically"
    );
}
