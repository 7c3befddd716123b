//! Tables as text.

use std::io::{self, Write};

/// Writes rows in columns, the first row as the heading. Columns from `numbers` on are aligned
/// right.
pub(crate) fn write(rows: &[Vec<String>], numbers: usize, out: &mut dyn Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.collect();
        cells.join("  ").trim_end().to_owned()
    };
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate();
        let mut cells = cells.map(|(at, (cell, &width))| match at >= numbers {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        writeln!(out, "{}", line(&mut cells))?;
        if number == 0 {
            let mut dashes = widths.iter().map(|&width| "-".repeat(width));
            writeln!(out, "{}", line(&mut dashes))?;
        }
    }
    Ok(())
}

/// A number with separators, as in `1,234,567`.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match number < 0 {
        true => format!("-{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups_of_three() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-1_234_567, "-1,234,567"),
        ];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
