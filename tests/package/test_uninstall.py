"""The environment without the package again: the last file by name, since the others need it."""


def test_uninstalling_leaves_torch_as_it_was(environment):
    environment.uninstall()
    status, _, errors = environment.run("import npualloc")
    assert status == 1
    assert "No module named 'npualloc'" in errors
    code = "import torch\nprint(torch.empty(1, device='npu').numel())"
    assert environment.answer(code) == 1
