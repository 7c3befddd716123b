//! Widths of text without a font, close enough for the sizes of boxes.

/// The width of `text` in a proportional sans-serif font of this size, in pixels.
///
/// Widths are those of common interface fonts (Helvetica, Segoe UI, Roboto, DejaVu Sans), the
/// widest of them: within a tenth on identifiers, and rather too wide than too narrow.
pub(crate) fn text_width(text: &str, font_size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * font_size
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.31,
        'f' | 't' | 'r' | 'I' | '(' | ')' | '[' | ']' | '/' | '-' => 0.40,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.92,
        '×' => 0.84,
        '0'..='9' => 0.64,
        'A'..='Z' => 0.68,
        '\0'..='\u{2e7f}' => 0.60,
        _ => 1.05,
    }
}

/// Factor by which bold text is wider.
const BOLD: f64 = 1.08;

/// As [`text_width`], of bold text.
pub(crate) fn bold_width(text: &str, font_size: f64) -> f64 {
    BOLD * text_width(text, font_size)
}

/// `text`, or as much of it as fits into `width` pixels, with an ellipsis.
pub(crate) fn fit(text: &str, font_size: f64, width: f64) -> String {
    if text_width(text, font_size) <= width {
        return text.to_owned();
    }
    let room = width - em('…') * font_size;
    let mut used = 0.0;
    let fitting = text.chars().take_while(|&c| {
        used += em(c) * font_size;
        used <= room
    });
    fitting.chain(['…']).collect()
}

/// As [`fit`], of bold text.
pub(crate) fn fit_bold(text: &str, font_size: f64, width: f64) -> String {
    fit(text, BOLD * font_size, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_where_the_room_ends() {
        assert_eq!(fit("conv1", 12.0, 200.0), "conv1");
        let cut = fit("a_very_long_name_of_a_module", 12.0, 80.0);
        assert!(
            cut.ends_with('…') && text_width(&cut, 12.0) <= 80.0,
            "{cut}"
        );
        assert_eq!(fit("漢字漢字", 10.0, 15.0), "…");
    }
}
