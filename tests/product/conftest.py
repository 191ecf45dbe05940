from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.product.running import Customer, Product, make_customer
from tests.sandbox.emulator import Emulator
from tests.sandboxes import sandbox, sandbox_process

__all__ = ["sandbox", "sandbox_process"]


@pytest.fixture
def product(request: pytest.FixtureRequest, transactional_db: None, sandbox: Emulator) -> Iterator[Product]:
    """Parametrize it indirectly with the options of Product."""
    product = Product(sandbox, **getattr(request, "param", {}))
    try:
        product.start()
        yield product
    finally:
        product.stop()


@pytest.fixture
def customer(product: Product, settings: Any) -> Iterator[Customer]:
    customer = make_customer(product, settings)
    yield customer
    customer.api.close()
