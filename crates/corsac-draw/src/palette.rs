//! Colours, in light and dark: the same in every picture.

use std::fmt::Write;

use crate::heat::STEPS;
use crate::kind::Kind;

type Rgb = [u8; 3];

/// The colours of one appearance.
struct Palette {
    /// The background.
    page: Rgb,
    /// Text, secondary text, lines, outlines of modules, the inside of modules.
    ink: Rgb,
    muted: Rgb,
    line: Rgb,
    outline: Rgb,
    module: Rgb,
    /// Share of its colour in the inside of a node.
    tint: f64,
    /// From cold to hot.
    heat: [Rgb; 4],
    /// Nodes added, removed, changed, moved.
    changes: [Rgb; 4],
}

const LIGHT: Palette = Palette {
    page: [0xfb, 0xfb, 0xfc],
    ink: [0x1b, 0x21, 0x2b],
    muted: [0x62, 0x6b, 0x7a],
    line: [0x9a, 0xa3, 0xb0],
    outline: [0xcb, 0xd1, 0xda],
    module: [0xf1, 0xf3, 0xf6],
    tint: 0.17,
    heat: [
        [0xfb, 0xf5, 0xe3],
        [0xfd, 0xcf, 0x84],
        [0xf2, 0x7a, 0x45],
        [0xb4, 0x1a, 0x3c],
    ],
    changes: [
        [0x16, 0x8a, 0x4a],
        [0xd0, 0x36, 0x3b],
        [0xc7, 0x7d, 0x0a],
        [0x3f, 0x74, 0xd1],
    ],
};

const DARK: Palette = Palette {
    page: [0x12, 0x15, 0x1a],
    ink: [0xe6, 0xe9, 0xee],
    muted: [0x9a, 0xa4, 0xb2],
    line: [0x65, 0x6f, 0x7e],
    outline: [0x3b, 0x43, 0x50],
    module: [0x1a, 0x1f, 0x27],
    tint: 0.30,
    heat: [
        [0x2a, 0x28, 0x26],
        [0x70, 0x48, 0x1c],
        [0xc4, 0x55, 0x2c],
        [0xff, 0xb4, 0x6e],
    ],
    changes: [
        [0x3f, 0xc0, 0x7a],
        [0xf0, 0x6a, 0x6a],
        [0xe8, 0xab, 0x3c],
        [0x7a, 0xa7, 0xf5],
    ],
};

const CHANGES: [&str; 4] = ["added", "removed", "changed", "moved"];

/// The colour of a kind of operator.
fn kind(kind: Kind) -> Rgb {
    match kind {
        Kind::Input | Kind::Output => [0x47, 0x55, 0x69],
        Kind::Parameter => [0xb5, 0x9a, 0x3c],
        Kind::Convolution => [0x2f, 0x7a, 0xe5],
        Kind::Matmul => [0x7b, 0x55, 0xe8],
        Kind::Attention => [0xd0, 0x3c, 0x9b],
        Kind::Norm => [0x12, 0x9c, 0x86],
        Kind::Activation => [0xec, 0x97, 0x12],
        Kind::Pool => [0x10, 0x9c, 0xc4],
        Kind::Elementwise => [0xdf, 0x56, 0x45],
        Kind::Reduction => [0xa4, 0x63, 0x2a],
        Kind::Embedding => [0x63, 0x9c, 0x1c],
        Kind::Shape => [0x86, 0x91, 0xa1],
        Kind::Dropout => [0xae, 0xb6, 0xc2],
        Kind::Other => [0x6b, 0x74, 0x82],
    }
}

/// Colours of parts; one more part has the first colour again.
const PARTS: [Rgb; 8] = [
    [0x2f, 0x7a, 0xe5],
    [0xec, 0x97, 0x12],
    [0x12, 0x9c, 0x86],
    [0xd0, 0x3c, 0x9b],
    [0x63, 0x9c, 0x1c],
    [0x7b, 0x55, 0xe8],
    [0xdf, 0x56, 0x45],
    [0x6b, 0x74, 0x82],
];

/// Number of different colours of parts.
pub(crate) const PART_COLORS: usize = PARTS.len();

/// The class of the colour of a part.
pub(crate) fn part_class(part: u32) -> String {
    format!("part-{}", part as usize % PARTS.len())
}

/// The colours as CSS custom properties, without selector: `--page`, `--ink`, `--kind-norm` and
/// `--tint-norm` for kinds, `--part-0` and `--tint-part-0` for parts, `--heat-0` to `--heat-8`, `--added` and so on.
pub(crate) fn properties(dark: bool) -> String {
    let palette = if dark { DARK } else { LIGHT };
    let mut out = String::new();
    let mut say = |name: &str, color: Rgb| {
        let [r, g, b] = color;
        // Writing to a `String` cannot fail.
        let _ = write!(out, "--{name}:#{r:02x}{g:02x}{b:02x};");
    };
    say("page", palette.page);
    say("ink", palette.ink);
    say("muted", palette.muted);
    say("line", palette.line);
    say("outline", palette.outline);
    say("module", palette.module);
    for of in Kind::ALL {
        let color = if dark {
            mix(kind(of), [0xff; 3], 0.12)
        } else {
            kind(of)
        };
        say(&format!("kind-{}", of.class()), color);
        say(
            &format!("tint-{}", of.class()),
            mix(palette.page, color, palette.tint),
        );
    }
    for (part, color) in PARTS.into_iter().enumerate() {
        let color = if dark {
            mix(color, [0xff; 3], 0.12)
        } else {
            color
        };
        say(&format!("part-{part}"), color);
        say(
            &format!("tint-part-{part}"),
            mix(palette.page, color, palette.tint),
        );
    }
    for step in 0..STEPS {
        say(&format!("heat-{step}"), heat(&palette.heat, step));
    }
    for (name, color) in CHANGES.iter().zip(palette.changes) {
        say(name, color);
        say(
            &format!("tint-{name}"),
            mix(palette.page, color, palette.tint),
        );
    }
    out
}

/// The inside of a node of this kind, on light paper: `#rrggbb`.
pub(crate) fn tint_of(of: Kind) -> String {
    let [r, g, b] = mix(LIGHT.page, kind(of), LIGHT.tint);
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn heat(anchors: &[Rgb; 4], step: usize) -> Rgb {
    let at = step as f64 / (STEPS - 1) as f64 * (anchors.len() - 1) as f64;
    let first = (at as usize).min(anchors.len() - 2);
    mix(anchors[first], anchors[first + 1], at - first as f64)
}

/// `share` of `b` in `a`.
fn mix(a: Rgb, b: Rgb, share: f64) -> Rgb {
    let channel = |i: usize| f64::from(a[i]) * (1.0 - share) + f64::from(b[i]) * share;
    [0, 1, 2].map(|i| channel(i).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_step_has_a_colour() {
        for dark in [false, true] {
            let css = properties(dark);
            for kind in Kind::ALL {
                assert!(css.contains(&format!("--kind-{}:#", kind.class())));
            }
            assert!(css.contains("--heat-0:") && css.contains("--heat-8:"));
        }
    }

    /// WCAG 2.2, relative luminance and contrast ratio.
    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let luminance = |color: Rgb| {
            let channel = |c: u8| match f64::from(c) / 255.0 {
                c if c <= 0.04045 => c / 12.92,
                c => ((c + 0.055) / 1.055).powf(2.4),
            };
            0.2126 * channel(color[0]) + 0.7152 * channel(color[1]) + 0.0722 * channel(color[2])
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_is_readable_on_every_kind() {
        for palette in [LIGHT, DARK] {
            assert!(contrast(palette.ink, palette.page) > 12.0);
            assert!(contrast(palette.muted, palette.page) > 4.5);
            for of in Kind::ALL {
                let tint = mix(palette.page, kind(of), palette.tint);
                assert!(contrast(palette.ink, tint) > 7.0, "{of:?}");
            }
            for color in PARTS {
                let tint = mix(palette.page, color, palette.tint);
                assert!(contrast(palette.ink, tint) > 7.0, "{color:?}");
            }
        }
    }
}
