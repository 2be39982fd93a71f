//! Draws an SVG as a PNG, on white, at its own size.
//!
//! Only this module touches the renderer, and only when an SVG is given: fonts are looked up then and not before. A drawing may
//! not read files: a picture it links to would be sent to the server. Pictures inside of it obey the limits of those outside.
//! A filter of a few bytes can take minutes, so that all of it happens on a thread with limits (`limited`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Family, Query};
use resvg::usvg::{ImageHrefResolver, Options, Tree};

use super::kind::{self, Kind};
use super::measured;
use crate::limited::{self, Limits, Stopped};

/// Longer side of the result, in pixels: larger drawings are scaled down. No model sees more.
const LONGEST_SIDE: f32 = 2048.0;

/// Of one drawing with the pictures inside of it; the largest of these takes a quarter.
const MOST_BYTES: u64 = 1 << 30;
/// Drawings that ran into a limit stay behind with their memory: after so many of them there are no more.
const MOST_STUCK: usize = 4;
static STUCK: AtomicUsize = AtomicUsize::new(0);

/// The PNG, or why there is none. `left`: of the `whole` time for all drawings.
pub(super) fn rasterise(svg: Vec<u8>, left: Duration, whole: Duration) -> Result<Vec<u8>, String> {
    if STUCK.load(Ordering::Relaxed) >= MOST_STUCK {
        return Err(format!("{MOST_STUCK} drawings before it ran into a limit: convert it to PNG"));
    }
    limited::run(Limits { time: left, bytes: MOST_BYTES }, move || drawn(&svg)).unwrap_or_else(|stopped| {
        STUCK.fetch_add(1, Ordering::Relaxed);
        Err(match stopped {
            Stopped::Time(_) => format!(
                "drawing it, with those before it, takes longer than {} s: convert it to PNG",
                whole.as_secs_f64()
            ),
            stopped => format!("it cannot be drawn: {}", stopped.reason()),
        })
    })
}

fn drawn(svg: &[u8]) -> Result<Vec<u8>, String> {
    let draw = ImageHrefResolver::default_data_resolver();
    let refused = OnceLock::new();
    let mut options = Options::default();
    options.image_href_resolver.resolve_string = Box::new(|_, _| None);
    options.image_href_resolver.resolve_data = Box::new(|mime, data, options| {
        // Compressed drawings and unknown kinds are no part of the picture.
        let kind = kind::of(&data).ok()?;
        let checked = if kind == Kind::Svg { Ok(()) } else { measured(kind, &data) };
        match checked {
            Ok(()) => draw(mime, data, options),
            Err(reason) => {
                // Without it the picture would be another one. The first reason is enough.
                let _ = refused.set(format!("a picture inside of it cannot be used: {reason}"));
                None
            }
        }
    });
    if holds_text(svg) {
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        if fonts.is_empty() {
            // Without the words the picture would be another one.
            let reason =
                "it holds text, and there are no fonts on this machine: install some, or convert it to PNG";
            return Err(reason.to_owned());
        }
        name_families(fonts);
    }
    let tree = Tree::from_data(svg, &options).map_err(|cause| format!("it is no valid SVG: {cause}"))?;
    if let Some(reason) = refused.get() {
        return Err(String::clone(reason));
    }
    let size = tree.size();
    let scale = (LONGEST_SIDE / size.width().max(size.height())).min(1.0);
    let side = |length: f32| (length * scale).ceil().max(1.0) as u32;
    let mut picture = Pixmap::new(side(size.width()), side(size.height())).ok_or("it has no size")?;
    picture.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut picture.as_mut());
    picture.encode_png().map_err(|cause| format!("it cannot be drawn: {cause}"))
}

fn holds_text(svg: &[u8]) -> bool {
    svg.windows(5).any(|part| part == b"<text")
}

/// The renderer takes `serif` for every family that is not there, and leaves words out when that is not there either. Its own
/// names for the general families are those of another system.
fn name_families(fonts: &mut Database) {
    let with = |fonts: &Database, part: &str| {
        let names: Vec<&String> =
            fonts.faces().flat_map(|face| &face.families).map(|(name, _)| name).collect();
        names.iter().find(|name| name.contains(part)).or(names.first()).map(|name| (*name).clone())
    };
    let there =
        |fonts: &Database, family| fonts.query(&Query { families: &[family], ..Query::default() }).is_some();
    for (family, part) in [(Family::SansSerif, "Sans"), (Family::Serif, "Serif"), (Family::Monospace, "Mono")]
    {
        if let Some(name) = with(fonts, part).filter(|_| !there(fonts, family)) {
            match family {
                Family::SansSerif => fonts.set_sans_serif_family(name),
                Family::Monospace => fonts.set_monospace_family(name),
                _ => fonts.set_serif_family(name),
            }
        }
    }
}
