//! Cooperative matrices: 16×16 tiles, f16 factors and f32 sums, held by a whole subgroup.

use naga::{CooperativeData, CooperativeRole, CooperativeSize, Expression, Handle, Scalar};

use super::{Result, Writer, body::Body, expr::bare, unsupported};

/// The type of a tile in the prelude.
pub(super) fn type_name(
    columns: CooperativeSize,
    rows: CooperativeSize,
    scalar: Scalar,
    role: CooperativeRole,
) -> Result<&'static str> {
    let is_16 = columns == CooperativeSize::Sixteen && rows == CooperativeSize::Sixteen;
    match role {
        CooperativeRole::A if is_16 && scalar == Scalar::F16 => Ok("coop_a"),
        CooperativeRole::B if is_16 && scalar == Scalar::F16 => Ok("coop_b"),
        CooperativeRole::C if is_16 && scalar == Scalar::F32 => Ok("coop_c"),
        _ => unsupported("cooperative matrix", (columns, rows, scalar, role)),
    }
}

impl<'a> Writer<'a> {
    pub(super) fn matrix_load(
        &self,
        body: &Body<'a>,
        e: Handle<Expression>,
        role: CooperativeRole,
        data: &CooperativeData,
    ) -> Result<String> {
        let ty = self.resolution_name(body.resolution(e))?;
        let role = match role {
            CooperativeRole::A => "a",
            CooperativeRole::B => "b",
            CooperativeRole::C => "c",
        };
        debug_assert!(ty.ends_with(role));
        Ok(format!("coop_load_{role}<{}>({})", data.row_major, self.matrix_place(body, data)?))
    }

    pub(super) fn matrix_store(
        &mut self,
        body: &Body<'a>,
        target: Handle<Expression>,
        data: &CooperativeData,
    ) -> Result<()> {
        let (target, place) = (self.expr(body, target)?, self.matrix_place(body, data)?);
        self.line(body.level, format!("coop_store<{}>({target}, {place});", data.row_major));
        Ok(())
    }

    /// The address of the first element and the elements between two rows (or columns).
    fn matrix_place(&self, body: &Body<'a>, data: &CooperativeData) -> Result<String> {
        let (place, stride) = (self.expr(body, data.pointer)?, self.expr(body, data.stride)?);
        Ok(format!("&{place}, {}", bare(&stride)))
    }
}
