//! Draws an SVG as a PNG, on white, at its own size.
//!
//! Only this module touches the renderer, and only when an SVG is given: fonts are looked up then and not before. A drawing may
//! not read files: a picture it links to would be sent to the server.

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Longer side of the result, in pixels: larger drawings are scaled down. No model sees more.
const LONGEST_SIDE: f32 = 2048.0;

/// The PNG, or why there is none.
pub(super) fn rasterise(svg: &[u8]) -> Result<Vec<u8>, String> {
    let mut options = Options::default();
    options.image_href_resolver.resolve_string = Box::new(|_, _| None);
    options.fontdb_mut().load_system_fonts();
    let tree = Tree::from_data(svg, &options).map_err(|cause| format!("it is no valid SVG: {cause}"))?;
    let size = tree.size();
    let scale = (LONGEST_SIDE / size.width().max(size.height())).min(1.0);
    let side = |length: f32| (length * scale).ceil().max(1.0) as u32;
    let mut picture = Pixmap::new(side(size.width()), side(size.height())).ok_or("it has no size")?;
    picture.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut picture.as_mut());
    picture.encode_png().map_err(|cause| format!("it cannot be drawn: {cause}"))
}
