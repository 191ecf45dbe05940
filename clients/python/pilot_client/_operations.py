"""Methods that are written once, as flows, and serve both clients: called on a resource of Pilot they give the result,
on one of AsyncPilot something to await."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import httpx

from pilot_client._exchange import Flow, Listing, Page, Request, exchange
from pilot_client._records import R
from pilot_client._transports import AsyncTransport, Transport

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Resource[Any]")
X = TypeVar("X", bound=Transport | AsyncTransport)


class Resource(Generic[X]):
    """A part of the API. Its operations are flows."""

    def __init__(self, transport: X) -> None:
        self._transport = transport

    def _exchange(self, request: Request) -> Flow[httpx.Response]:
        return exchange(request, self._transport.retrying)

    def _ask(self, request: Request, read: Callable[[Any], T]) -> Flow[T]:
        answer = yield from self._exchange(request)
        return read(answer.json())

    def _listing(self, request: Request, name: str, record: type[R]) -> Listing[R]:
        def read(data: Any) -> Page[R]:
            return Page([record.of(item) for item in data[name]], data["next_cursor"])

        return Listing(request, read, self._transport.retrying)


class operation(Generic[S, P, T]):
    """A method that makes requests and comes to a result."""

    def __init__(self, flow: Callable[Concatenate[S, P], Flow[T]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, resource: None, owner: Any = None) -> operation[S, P, T]: ...
    @overload
    def __get__(self, resource: Resource[Transport], owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, resource: Resource[AsyncTransport], owner: Any = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, resource: Any, owner: Any = None) -> Any:
        if resource is None:
            return self

        @wraps(self._flow)
        def perform(*args: P.args, **kwargs: P.kwargs) -> Any:
            return resource._transport.run(self._flow(resource, *args, **kwargs))

        return perform


class listing(Generic[S, P, T]):
    """A method that gives an iterable over a list, which is fetched page by page as it is read."""

    def __init__(self, build: Callable[Concatenate[S, P], Listing[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, resource: None, owner: Any = None) -> listing[S, P, T]: ...
    @overload
    def __get__(self, resource: Resource[Transport], owner: Any = None) -> Callable[P, Pages[T]]: ...
    @overload
    def __get__(
        self, resource: Resource[AsyncTransport], owner: Any = None
    ) -> Callable[P, AsyncPages[T]]: ...
    def __get__(self, resource: Any, owner: Any = None) -> Any:
        if resource is None:
            return self
        pages = Pages if isinstance(resource._transport, Transport) else AsyncPages

        @wraps(self._build)
        def perform(*args: P.args, **kwargs: P.kwargs) -> Any:
            return pages(self._build(resource, *args, **kwargs), resource._transport)

        return perform


class Pages(Generic[T]):
    """A list: iterate over it for its items, or over `pages()`. Each iteration begins at its first page."""

    def __init__(self, wanted: Listing[T], transport: Transport) -> None:
        self._wanted = wanted
        self._transport = transport

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.items

    def pages(self, cursor: str | None = None) -> Iterator[Page[T]]:
        """The pages from `cursor` on: the `next_cursor` of an earlier one."""
        page = self._transport.run(self._wanted.page(cursor))
        yield page
        while page.next_cursor:
            page = self._transport.run(self._wanted.page(page.next_cursor))
            yield page


class AsyncPages(Generic[T]):
    """The same for `async for`."""

    def __init__(self, wanted: Listing[T], transport: AsyncTransport) -> None:
        self._wanted = wanted
        self._transport = transport

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.items:
                yield item

    async def pages(self, cursor: str | None = None) -> AsyncIterator[Page[T]]:
        """The pages from `cursor` on: the `next_cursor` of an earlier one."""
        page = await self._transport.run(self._wanted.page(cursor))
        yield page
        while page.next_cursor:
            page = await self._transport.run(self._wanted.page(page.next_cursor))
            yield page
