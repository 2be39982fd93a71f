"""Training attention for trees: a prompt prefix shared by K children. Scores of the children on their prefix are one
matmul per tree, so nothing is copied K times. bf16 matmuls (AMX where the CPU has it), softmax in f32, own backward
(PyTorch's CPU flash attention is several times slower in bf16). Query and key norms bound the scores, so no maximum is
subtracted before exp.
"""
import torch


def exp_sum(s, m):
    """exp(s + m) and its sum over the last axis; outputs are divided by the sum after the matmul."""
    e = torch.exp(s.float() + m)
    return e.to(s.dtype), e.sum(-1)


def back(e, dp, d):
    return (e.float() * (dp.float() - d[..., None])).to(e.dtype)


_fn = {"exp_sum": exp_sum, "back": back}


def compile_kernels():
    for k in _fn:
        _fn[k] = torch.compile(globals()[k], dynamic=True)


class Tree(torch.autograd.Function):
    """q [N, heads, hd], k, v [N, kv heads, hd] with N = T*Lp + T*K*Lc; mask_p [T, Lp], mask_c [T*K, Lc, Lc] additive."""

    @staticmethod
    def forward(ctx, q, k, v, shape, mask_p, mask_c, causal):
        T, Lp, K, Lc = shape
        n, (nh, hd), nkv = T * Lp, q.shape[1:], k.shape[1]
        g = nh // nkv
        qc = q[n:].view(T, K, Lc, nkv, g, hd)
        kc, vc = (t[n:].view(T, K, Lc, nkv, hd).permute(0, 1, 3, 2, 4).reshape(T * K * nkv, Lc, hd) for t in (k, v))
        q2 = qc.permute(0, 1, 3, 4, 2, 5).reshape(T * K * nkv, g * Lc, hd)  # rows as the child block wants them
        sc = torch.bmm(q2, kc.mT).view(T, K, nkv, g, Lc, Lc)
        mc = mask_c.view(T, K, 1, 1, Lc, Lc)
        if Lp:
            kp, vp, qp = k[:n].view(T, Lp, nkv, hd), v[:n].view(T, Lp, nkv, hd), q[:n].view(T, Lp, nkv, g, hd)
            kp, vp = (t.transpose(1, 2).reshape(T * nkv, Lp, hd) for t in (kp, vp))
            qp = qp.permute(0, 2, 3, 1, 4).reshape(T * nkv, g * Lp, hd)
            pp, zp = _fn["exp_sum"](torch.bmm(qp, kp.mT).view(T, nkv, g, Lp, Lp), causal)
            zp = (1 / zp).view(T * nkv, g * Lp, 1)
            op = (torch.bmm(pp.view(T * nkv, g * Lp, Lp), vp) * zp).to(q.dtype)
            q1 = qc.permute(0, 3, 4, 1, 2, 5).reshape(T * nkv, g * K * Lc, hd)
            sp = torch.bmm(q1, kp.mT).view(T, nkv, g, K, Lc, Lp)
            a, za = _fn["exp_sum"](sp, mask_p.view(T, 1, 1, 1, 1, Lp))
            c, z = _fn["exp_sum"](sc, mc)
            z = (1 / (za.permute(0, 3, 1, 2, 4) + z)).reshape(T * K * nkv, g * Lc, 1)
            oc = torch.bmm(a.view(T * nkv, g * K * Lc, Lp), vp).view(T, nkv, g, K, Lc, hd).permute(0, 3, 1, 2, 4, 5).reshape(T * K * nkv, g * Lc, hd)
            oc = ((oc + torch.bmm(c.view(T * K * nkv, g * Lc, Lc), vc)) * z).to(q.dtype)
            outs = [op.view(T, nkv, g, Lp, hd).permute(0, 3, 1, 2, 4).reshape(n, nh * hd)]
        else:
            kp = vp = qp = pp = op = q1 = a = zp = None
            c, z = _fn["exp_sum"](sc, mc)
            z = (1 / z).view(T * K * nkv, g * Lc, 1)
            oc = (torch.bmm(c.view(T * K * nkv, g * Lc, Lc), vc) * z).to(q.dtype)
            outs = []
        outs.append(oc.view(T, K, nkv, g, Lc, hd).permute(0, 1, 4, 2, 3, 5).reshape(T * K * Lc, nh * hd))
        ctx.save_for_backward(q2, kc, vc, c, oc, z, kp, vp, qp, pp, op, zp, q1, a)
        ctx.dims = (T, Lp, K, Lc, nh, nkv, hd)
        return torch.cat(outs)

    @staticmethod
    def backward(ctx, do):
        q2, kc, vc, c, oc, z, kp, vp, qp, pp, op, zp, q1, a = ctx.saved_tensors
        T, Lp, K, Lc, nh, nkv, hd = ctx.dims
        g, n = nh // nkv, T * Lp
        # rows of the incoming gradient are divided by the softmax sums once; everything below then uses exp alone
        d2 = (do[n:].view(T, K, Lc, nkv, g, hd).permute(0, 1, 3, 4, 2, 5).reshape(T * K * nkv, g * Lc, hd) * z).to(do.dtype)
        D = (d2.float() * oc.float()).sum(-1).view(T, K, nkv, g, Lc)
        cf = c.view(T * K * nkv, g * Lc, Lc)
        dvc = torch.bmm(cf.mT, d2)
        ds = _fn["back"](c, torch.bmm(d2, vc.mT).view_as(c), D).view_as(cf)
        dq2, dkc = torch.bmm(ds, kc), torch.bmm(ds.mT, q2)
        dq = dq2.view(T, K, nkv, g, Lc, hd).permute(0, 1, 4, 2, 3, 5)
        kid = lambda t: t.view(T, K, nkv, Lc, hd).permute(0, 1, 3, 2, 4).reshape(T * K * Lc, nkv, hd)
        if not Lp:
            return dq.reshape(-1, nh, hd), kid(dkc), kid(dvc), None, None, None, None
        d1 = d2.view(T, K, nkv, g, Lc, hd).permute(0, 2, 3, 1, 4, 5).reshape(T * nkv, g * K * Lc, hd)
        af = a.view(T * nkv, g * K * Lc, Lp)
        ds1 = _fn["back"](a, torch.bmm(d1, vp.mT).view_as(a), D.permute(0, 2, 3, 1, 4)).view_as(af)
        dq = dq + torch.bmm(ds1, kp).view(T, nkv, g, K, Lc, hd).permute(0, 3, 4, 1, 2, 5)
        dkp, dvp = torch.bmm(ds1.mT, q1), torch.bmm(af.mT, d1)
        dp = (do[:n].view(T, Lp, nkv, g, hd).permute(0, 2, 3, 1, 4).reshape(T * nkv, g * Lp, hd) * zp).to(do.dtype)
        pf = pp.view(T * nkv, g * Lp, Lp)
        ds0 = _fn["back"](pp, torch.bmm(dp, vp.mT).view_as(pp), (dp.float() * op.float()).sum(-1).view(T, nkv, g, Lp)).view_as(pf)
        dqp = torch.bmm(ds0, kp).view(T, nkv, g, Lp, hd).permute(0, 3, 1, 2, 4).reshape(n, nh, hd)
        dkp, dvp = dkp + torch.bmm(ds0.mT, qp), dvp + torch.bmm(pf.mT, dp)
        pre = lambda t: t.view(T, nkv, Lp, hd).transpose(1, 2).reshape(n, nkv, hd)
        return torch.cat([dqp, dq.reshape(-1, nh, hd)]), torch.cat([pre(dkp), kid(dkc)]), torch.cat([pre(dvp), kid(dvc)]), None, None, None, None
